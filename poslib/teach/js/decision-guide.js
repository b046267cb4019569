/* decision-guide: what a reader needs, and which ways to tell position have most reasons on their side.
 * The rules are those of poslib.lab.choosing, which writes them here (python -m poslib.lab.choosing --figure); what they
 * say of the atlas is read off its stored results. There are no weights: a method's place is reasons for less reasons against. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const DATA = {"methods":{},"rules":[]};

  function ranked(s) {
    const fired = DATA.rules.filter(([when]) => Object.entries(when).every(([k, v]) => s[k] === v));
    const of = (m, side) => fired.filter((r) => r[1] === m && r[2] === side).map(([, , , reason, source]) => ({ reason, source }));
    const all = Object.keys(DATA.methods).map((m, n) => ({ method: m, name: DATA.methods[m], n, for: of(m, 'for'), against: of(m, 'against'), out: of(m, 'out') }));
    const place = (a) => (a.out.length ? 1000 : 0) + a.against.length - a.for.length;
    return all.sort((a, b) => place(a) - place(b) || a.n - b.n);
  }
  const folded = (t, width) => t.split(' ').reduce((lines, word) => {
    const last = lines[lines.length - 1];
    if (last !== undefined && (last + ' ' + word).length <= width) lines[lines.length - 1] = last + ' ' + word;
    else lines.push(word);
    return lines;
  }, []);
  const signed = (n) => (n > 0 ? '+' : n < 0 ? '−' : '') + Math.abs(n);

  F.define('decision-guide', {
    title: 'A guide: what you need, and what speaks for and against each way to tell position',
    controls: [
      { name: 'model', label: 'the model is', type: 'choice', value: 'decoder', options: [['decoder', 'a decoder'], ['encoder', 'an encoder']] },
      { name: 'length', label: 'it will read', type: 'choice', value: 'trained', options: [['trained', 'the trained length'], ['loss', 'longer, near tokens matter'], ['fetch', 'longer, far tokens matter']] },
      { name: 'kernel', label: 'the kernel takes', type: 'choice', value: 'turn', options: [['turn', 'queries, keys, values'], ['bias', 'also a number a lag']] },
      { name: 'lag', label: 'an exact lag must be met', type: 'check', value: false },
      { name: 'tune', label: 'long texts at the end of training', type: 'check', value: false },
      { name: 'memory', label: 'the cache must stay small', type: 'check', value: false },
      { name: 'apart', label: 'position as a term of its own', type: 'check', value: false },
      { name: 'look', label: 'show the reasons for', type: 'choice', value: 'first', options: [['first', 'the first of the list'], ['second', 'the second'], ['rotary', 'RoPE'], ['alibi', 'ALiBi'], ['t5', 'T5 bias'], ['shaw', 'Shaw'], ['mixed', 'windows and NoPE'], ['none', 'no positions'], ['learned', 'learned table']] },
    ],
    compute(s) {
      const list = ranked(s), shown = s.look === 'first' ? list[0] : s.look === 'second' ? list[1] : list.find((m) => m.method === s.look);
      return { list, shown: shown.method };
    },
    say(s) {
      const { list } = this.compute(s), lead = list[0].for.length - list[0].against.length;
      const tied = list.filter((m) => !m.out.length && m.for.length - m.against.length === lead).map((m) => m.name);
      const out = list.filter((m) => m.out.length).map((m) => m.name);
      return `Most speaks for ${tied.join(', ')}: ${signed(lead)}, reasons for less reasons against. ` +
        (out.length ? `Out: ${out.join(', ')}.` : 'Nothing is ruled out.');
    },
    panels(s) {
      const { list, shown } = this.compute(s), W = 330, row = 25, top = 34, mid = 236, unit = 15;
      const body = text(mid - 6, 18, 'against', 'text-anchor="end" font-size="12"') + text(mid + 6, 18, 'for', 'font-size="12"') +
        line(mid, 26, mid, top + row * list.length, `stroke="${INK}" stroke-opacity=".45"`) +
        list.map((m, n) => {
          const y = top + row * n, out = m.out.length > 0;
          const box = (k, side) => `<rect x="${fixed(side > 0 ? mid + 2 + k * unit : mid - 2 - (k + 1) * unit + 2)}" y="${y + 5}" width="${unit - 2}" height="13" fill="${side > 0 ? BLUE : ORANGE}"/>`;
          return (m.method === shown ? `<rect x="2" y="${y}" width="${W - 4}" height="${row - 1}" fill="${INK}" fill-opacity=".1"/>` : '') +
            text(6, y + 16, m.name, `font-size="12" ${out ? 'opacity=".75" text-decoration="line-through"' : ''}`) +
            (out ? text(mid + 6, y + 16, 'out', 'font-size="12"') : m.for.map((_, k) => box(k, 1)).join('') + m.against.map((_, k) => box(k, -1)).join(''));
        }).join('');
      const mine = list.find((m) => m.method === shown), lines = [];
      for (const [side, mark] of [['out', 'out'], ['for', '+'], ['against', '−']])
        for (const r of mine[side]) folded(`${mark}  ${r.reason} (${r.source})`, 48).forEach((t, n) => lines.push([n ? 22 : 6, t]));
      if (!lines.length) lines.push([6, 'No rule speaks for or against it here.']);
      const H = top + row * list.length + 6, tall = Math.max(H, 40 + 19 * lines.length);
      const reasons = text(6, 18, mine.name, 'font-weight="600"') + lines.map(([x, t], n) => text(x, 42 + 19 * n, t, 'font-size="12"')).join('');
      return [
        panel(W, H, `Methods in order, each with its reasons for and against as boxes; first ${list[0].name}.`, body),
        panel(W, tall, `Reasons for and against ${mine.name}: ${[...mine.out, ...mine.for, ...mine.against].map((r) => r.reason).join('; ') || 'none'}.`, reasons),
      ];
    },
  });
})(globalThis.PosFig);
