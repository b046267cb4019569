/* prefix: reorder what stands before the last word, under a causal mask, and see what the states notice.
 * The attention stack is that of _stack.js. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const SEQUENCES = {
    different: ['the', 'big', 'dog', 'bites', 'man'],
    two: ['dog', 'dog', 'man', 'man', 'dog'],
    constant: ['man', 'man', 'man', 'man', 'man'],
  };
  const { run, distance, EMBEDDING, LAYERS, VOCABULARY } = F.tools.stack;
  const same = (x) => x < 1e-9, depth = (s) => `${s.layers} layer${s.layers > 1 ? 's' : ''}`;

  F.define('prefix', {
    title: 'Reorder the prefix under a causal mask and see whether the last state notices',
    controls: [
      { name: 'words', label: 'words', type: 'choice', value: 'different',
        options: [['different', 'all different'], ['two', 'two kinds'], ['constant', 'all the same']] },
      { name: 'order', label: 'order of the prefix', type: 'order', value: [], items: (s) => SEQUENCES[s.words].slice(0, -1) },
      { name: 'layers', label: 'attention layers', unit: '', min: 1, max: 4, step: 1, value: 1 },
      { name: 'mark', label: 'marked first token', type: 'check', value: false },
    ],
    compute(s) {
      const words = SEQUENCES[s.words], last = words.length - 1, mark = s.mark ? ['<s>'] : [];
      const first = mark.concat(words), now = mark.concat(s.order.map((i) => words[i]), words[last]);
      const before = run(first, true, s.layers).states, after = run(now, true, s.layers).states;
      const own = after.slice(mark.length);              // states of the words, without the mark's
      const spread = Math.max(...own.map((a) => Math.max(...own.map((b) => distance(a, b)))));
      return { first, now, before, after, moved: distance(before[first.length - 1], after[now.length - 1]), spread,
        embedding: EMBEDDING, layers: LAYERS, vocabulary: VOCABULARY };
    },
    say(s) {
      const c = this.compute(s);
      return `“${c.now.join(' ')}”, ${depth(s)}: the last state ${same(c.moved) ? 'is where it was' : `moved by ${fixed(c.moved, 3)}`}. ` +
        (same(c.spread) ? 'All words have one and the same state: nothing tells their places apart.' : `The words’ states are up to ${fixed(c.spread, 3)} from each other.`);
    },
    panels(s) {
      const c = this.compute(s), n = c.now.length, W = 360, H = 214, gap = W / n, skip = s.mark ? 1 : 0;
      const x = (place) => gap * (place + 0.5), still = same(c.moved), colour = still ? BLUE : ORANGE, dash = still ? '' : 'stroke-dasharray="6 4"';
      const box = (place, y, word, style) =>
        `<rect x="${fixed(x(place) - gap * 0.45)}" y="${y - 17}" width="${fixed(gap * 0.9)}" height="26" rx="5" stroke-width="2" ${style}/>` +
        text(x(place), y, word, 'text-anchor="middle"');
      const plain = `stroke="${INK}" stroke-opacity=".5"`, to = c.now.map((_, place) =>
        (place < skip || place === n - 1 ? place : skip + s.order.indexOf(place - skip)));
      let body = text(4, 18, 'first order') + text(4, 192, 'this order');
      c.first.forEach((word, place) => {
        const isLast = place === n - 1, style = isLast ? `stroke="${colour}" ${dash}` : plain;
        body += line(x(place), 59, x(to[place]), 143, `${style} stroke-width="${isLast ? 3 : 1.5}"`) + box(place, 50, word, plain) +
          box(to[place], 160, word, style);
      });
      body += text(W - 4, 192, still ? 'the last state: the same' : `the last state moved by ${fixed(c.moved, 3)}`, 'text-anchor="end" font-size="12"');

      const top = 48, row = 30, left = 20, wide = (W - left) / n, most = Math.max(...c.after.flat().map(Math.abs));
      let grid = text(left, 16, `states after ${depth(s)}, a column for each place`);
      [0, 1, 2, 3].forEach((k) => { grid += text(left - 6, top + row * (k + 0.5) + 4, k + 1, 'text-anchor="end" font-size="12"'); });
      c.after.forEach((state, place) => {
        const px = left + wide * place;
        grid += text(px + wide / 2, top - 9, c.now[place], 'text-anchor="middle" font-size="12"');
        state.forEach((value, k) => {
          grid += `<rect x="${fixed(px)}" y="${top + row * k}" width="${fixed(wide)}" height="${row}" stroke="${INK}" stroke-opacity=".35" ` +
            `fill="${value < 0 ? ORANGE : BLUE}" fill-opacity="${fixed(0.45 * Math.abs(value) / most)}"/>` +
            text(px + wide / 2, top + row * (k + 0.5) + 4, fixed(value), 'text-anchor="middle" font-size="12"');
        });
        grid += text(px + wide / 2, top + row * 4 + 18, place + 1, 'text-anchor="middle" font-size="12"');
      });
      grid += `<rect x="${fixed(left + wide * (n - 1))}" y="${top}" width="${fixed(wide)}" height="${row * 4}" stroke="${colour}" stroke-width="3" ${dash}/>` +
        text(left, top + row * 4 + 38, same(c.spread) ? 'the words’ columns are equal' : 'the words’ columns differ', 'font-size="12"');
      return [
        panel(W, H, `The words in their first order and in this order. The last state ${still ? 'is the same' : `moved by ${fixed(c.moved, 3)}`}.`, body),
        panel(W, H, `States after ${depth(s)}, four channels at each place. ${same(c.spread) ? 'All words have the same state.' : 'The words’ states differ.'}`, grid),
      ];
    },
  });
})(globalThis.PosFig);
