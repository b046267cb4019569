/* order: reorder the words of a sentence and see which hidden states change.
 * The attention stack is that of _stack.js. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const SENTENCES = { short: ['dog', 'bites', 'man'], twins: ['the', 'dog', 'bites', 'the', 'man'] };
  const { run, distance, EMBEDDING, LAYERS, VOCABULARY } = F.tools.stack;
  // Words that occur twice are told apart by a small number, which the model does not see.
  const name = (words, i) => (words.indexOf(words[i]) === words.lastIndexOf(words[i]) ? words[i] : words[i] + (words.indexOf(words[i]) === i ? '₁' : '₂'));

  F.define('order', {
    title: 'Reorder the words and see which hidden states change',
    controls: [
      { name: 'sentence', label: 'sentence', type: 'choice', value: 'short', options: [['short', 'dog bites man'], ['twins', 'the dog bites the man']] },
      { name: 'order', label: 'order of the words', type: 'order', value: [], items: (s) => SENTENCES[s.sentence].map((_, i, words) => name(words, i)) },
      { name: 'mask', label: 'causal mask', type: 'check', value: false },
      { name: 'layers', label: 'attention layers', unit: '', min: 1, max: 4, step: 1, value: 1 },
    ],
    compute(s) {
      const words = SENTENCES[s.sentence];
      const before = run(words, s.mask, s.layers), after = run(s.order.map((i) => words[i]), s.mask, s.layers);
      const at = (i) => after.states[s.order.indexOf(i)];
      const changed = words.map((_, i) => distance(before.states[i], at(i)));
      const twin = words.findIndex((w, i) => words.lastIndexOf(w) !== i);
      return { words, names: words.map((_, i) => name(words, i)), before: before.states, after: after.states, weights: after.weights, changed,
        apart: twin < 0 ? null : distance(at(twin), at(words.lastIndexOf(words[twin]))), embedding: EMBEDDING, layers: LAYERS, vocabulary: VOCABULARY };
    },
    say(s) {
      const { names, changed, apart } = this.compute(s);
      const how = `${s.mask ? 'causal mask' : 'no mask'}, ${s.layers} layer${s.layers > 1 ? 's' : ''}`;
      const those = names.map((w, i) => [w, changed[i]]).filter(([, m]) => m > 1e-9);
      return `“${s.order.map((i) => names[i]).join(' ')}”, ${how}: ` + (those.length === 0 ? 'no hidden state changed.' :
        `${those.length} of ${names.length} hidden states changed: ${those.map(([w, m]) => `${w} by ${fixed(m, 3)}`).join(', ')}.`) +
        (apart === null ? '' : apart > 1e-9 ? ` The two “the” are ${fixed(apart, 3)} apart.` : ' The two “the” have one and the same state.');
    },
    panels(s) {
      const c = this.compute(s), n = c.words.length, W = 360, H = 226, gap = W / n;
      const x = (place) => gap * (place + 0.5), isChanged = (i) => c.changed[i] > 1e-9;
      const word = (place, y, i, colour, dash) =>
        `<rect x="${fixed(x(place) - gap * 0.44)}" y="${y - 17}" width="${fixed(gap * 0.88)}" height="26" rx="5" stroke="${colour}" stroke-width="2" ${dash}/>` +
        text(x(place), y, c.names[i], 'text-anchor="middle"');
      let body = text(4, 18, 'first order') + text(4, 222, 'this order');
      for (let i = 0; i < n; i++) {
        const place = s.order.indexOf(i), colour = isChanged(i) ? ORANGE : BLUE, dash = isChanged(i) ? 'stroke-dasharray="6 4"' : '';
        body += line(x(i), 59, x(place), 143, `stroke="${colour}" stroke-width="2" ${dash}`) + word(i, 50, i, INK, 'stroke-opacity=".5"') +
          word(place, 160, i, colour, dash) +
          text(x(place), 186, isChanged(i) ? 'changed by' : 'same', 'text-anchor="middle" font-size="12"') +
          (isChanged(i) ? text(x(place), 202, fixed(c.changed[i], 3), 'text-anchor="middle" font-size="12"') : '');
      }
      const left = 62, top = 42, side = 168, cell = side / n;
      let grid = text(left + side / 2, 16, `attention weights, layer ${s.layers}`, 'text-anchor="middle"');
      s.order.forEach((item, i) => {
        grid += text(left - 6, top + cell * (i + 0.5) + 4, c.names[item], 'text-anchor="end" font-size="12"') +
          text(left + cell * (i + 0.5), top - 7, c.names[item], 'text-anchor="middle" font-size="12"');
        c.weights[i].forEach((a, j) => {
          const px = left + cell * j, py = top + cell * i, hidden = s.mask && j > i;
          grid += `<rect x="${fixed(px)}" y="${fixed(py)}" width="${fixed(cell)}" height="${fixed(cell)}" stroke="${INK}" stroke-opacity=".35" ` +
            (hidden ? '/>' + line(px, py, px + cell, py + cell, `stroke="${INK}" stroke-opacity=".35"`)
              : `fill="${BLUE}" fill-opacity="${fixed(a * 0.6)}"/>` + text(px + cell / 2, py + cell / 2 + 4, fixed(a), 'text-anchor="middle" font-size="11"'));
        });
      });
      const states = c.names.map((w, i) => `${w} ${isChanged(i) ? `changed by ${fixed(c.changed[i], 3)}` : 'the same'}`).join(', ');
      return [
        panel(W, H, `The words in their first order and in this order. Hidden states: ${states}.`, body),
        panel(left + side + 12, H, `Attention weights of layer ${s.layers}, a row for each query${s.mask ? '; later words are hidden' : ''}.`, grid),
      ];
    },
  });
})(globalThis.PosFig);
