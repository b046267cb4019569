/* A small attention stack without positions, shared by the figures that need one.
 *
 * h_i <- h_i + sum_j A_ij W_V h_j with A = softmax(q_i . k_j / sqrt(d)), q = W_Q h, k = W_K h;
 * four channels, fixed weights, one to four layers. */
(function (F) {
  'use strict';
  const D = 4, VOCABULARY = ['dog', 'bites', 'man', 'the', 'big', 'old', '<s>'];
  // Any generic numbers would do; a formula keeps them out of the way and the same everywhere.
  const number = (...indices) => Math.cos(indices.reduce((sum, x, place) => sum + (x + 1) * (place + 1.7) * 1.3, 0.5));
  const rows = (n, m, ...prefix) => Array.from({ length: n }, (_, a) => Array.from({ length: m }, (_, b) => number(...prefix, a, b)));
  const EMBEDDING = rows(VOCABULARY.length, D, 7);
  const LAYERS = [0, 1, 2, 3].map((l) => ({ q: rows(D, D, l, 0), k: rows(D, D, l, 1), v: rows(D, D, l, 2) }));

  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const times = (matrix, vector) => matrix.map((row) => dot(row, vector));

  /* Hidden states after `depth` layers, in the order given, and the last layer's weights. */
  function run(words, masked, depth) {
    let h = words.map((w) => EMBEDDING[VOCABULARY.indexOf(w)]), weights;
    for (const layer of LAYERS.slice(0, depth)) {
      const q = h.map((x) => times(layer.q, x)), k = h.map((x) => times(layer.k, x)), v = h.map((x) => times(layer.v, x));
      weights = q.map((qi, i) => {
        const logits = k.map((kj, j) => (masked && j > i ? -Infinity : dot(qi, kj) / Math.sqrt(D)));
        const top = Math.max(...logits), e = logits.map((x) => Math.exp(x - top)), z = e.reduce((a, b) => a + b, 0);
        return e.map((x) => x / z);
      });
      h = h.map((hi, i) => hi.map((x, c) => x + weights[i].reduce((sum, a, j) => sum + a * v[j][c], 0)));
    }
    return { states: h, weights };
  }
  const distance = (a, b) => Math.hypot(...a.map((x, c) => x - b[c]));

  F.tools.stack = { run, distance, EMBEDDING, LAYERS, VOCABULARY };
})(globalThis.PosFig);
