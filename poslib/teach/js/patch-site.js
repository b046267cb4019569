/* patch-site: the query's side at one place is exchanged for that of another place. Where does it look, and what do trained models answer?
 * The head is built by hand, from vectors; a turned query can be turned further by any number of positions. The line DATA is written by `python -m poslib.lab.patching_position --figure`
 * from the stored result: percent of own and of source answers of each trained model, by encoding, site and move. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const DATA = {"moves":[-8,-7,-6,-5,-4,-3,-2,-1,1,2,3,4,5,6,7,8],"by":{"learned":{"stream":[[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[9,7,3,7,23],[8,5,8,3,7]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]]],"stream, codes exchanged":[[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]]],"q":[[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]]],"turned q":[[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]]],"ids":[[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[6,7,7,8,15],[27,5,8,6,29]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]]]},"rotary":{"stream":[[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]]],"stream, codes exchanged":[[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]]],"q":[[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]]],"turned q":[[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]]],"turned q, turned back":[[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]]],"ids":[[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[5,7,3,7,9],[10,8,8,7,5]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]]]},"t5":{"stream":[[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]]],"stream, codes exchanged":[[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]]],"q":[[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]]],"turned q":[[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]],[[100,100,100,100,100],[0,0,0,0,0]]],"ids":[[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[20,19,18,23,14],[6,10,12,5,3]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]],[[0,0,0,0,0],[100,100,100,100,100]]]}}};
  const LENGTH = 32, PLACE = 16, BACK = 3, PAIRS = 8, BASE = 100, GAIN = 40;
  const ENCODINGS = { learned: 'a table, added', rotary: 'RoPE', t5: 'a bias of the lag' };
  const SITES = {
    stream: 'stream', 'stream, codes exchanged': 'stream, codes exchanged', q: 'query, before turning', 'turned q': 'query, turned', ids: 'position id alone' };
  const OMEGA = Array.from({ length: PAIRS }, (_, k) => Math.pow(BASE, -k / PAIRS));

  /* Pairs (a, b), all in one list; turned by `by` positions. */
  const turn = (x, by) => x.map(([a, b], k) => [a * Math.cos(by * OMEGA[k]) - b * Math.sin(by * OMEGA[k]), a * Math.sin(by * OMEGA[k]) + b * Math.cos(by * OMEGA[k])]);
  const plus = (x, y, s) => x.map(([a, b], k) => [a + s * y[k][0], b + s * y[k][1]]);
  const dot = (x, y) => x.reduce((sum, [a, b], k) => sum + a * y[k][0] + b * y[k][1], 0);
  const ONE = OMEGA.map(() => [1, 0]), code = (p) => turn(ONE, p);
  /* Only a query that a rotation has turned can be turned on. */
  const turns = (s) => s.encoding === 'rotary' && s.site === 'turned q';

  /* The head wants lag BACK. Content is the same everywhere, so that only position speaks; `asks` is where the query believes to stand.
   * Table: the stream holds the code; W_Q turns it BACK positions back. RoPE: W_Q turns the content back, then R_p turns. Bias: of the lag. */
  function scores(encoding, site, j, on) {
    const ids = Array.from({ length: LENGTH }, (_, p) => p);
    if (site === 'ids') ids[PLACE] = j;
    const own = ids[PLACE], size = GAIN / PAIRS;
    if (encoding === 't5') return { asks: own, raw: ids.map((p) => size * dot(turn(ONE, own - p - BACK), ONE)) };
    if (encoding === 'learned') {
      let x = code(site === 'ids' ? own : j);
      if (site === 'stream, codes exchanged') x = plus(plus(x, code(j), -1), code(PLACE), 1);
      const q = turn(x, -BACK);                          // there is no turning: "turned" is the same vector
      const patched = site === 'stream' ? j : own;        // the stream's patch gives its place another key, too
      return { asks: site === 'stream, codes exchanged' ? own : j, raw: ids.map((p, place) => size * dot(q, code(place === PLACE ? patched : p))) };
    }
    const from = site === 'turned q' ? j : own, turned = turn(turn(turn(ONE, -BACK), from), on);
    return { asks: from + on, raw: ids.map((p) => size * dot(turned, turn(ONE, p))) };
  }

  F.define('patch-site', {
    title: 'A patch across positions: where the patched query looks, and what trained models answer',
    controls: [
      { name: 'encoding', label: 'position comes by', type: 'choice', value: 'rotary', options: Object.entries(ENCODINGS) },
      { name: 'site', label: 'what is patched', type: 'choice', value: 'turned q', options: Object.entries(SITES) },
      { name: 'move', label: 'displacement, in places', unit: '', min: -8, max: 8, step: 1, value: 6 },
      { name: 'on', label: 'then turned further by, in positions', unit: '', min: -8, max: 8, step: 1, value: 0 },
    ],
    compute(s) {
      const j = PLACE + s.move, on = turns(s) ? s.on : 0, { asks, raw } = scores(s.encoding, s.site, j, on);
      const most = Math.max(...raw), e = raw.map((x) => Math.exp(x - most)), sum = e.reduce((a, b) => a + b, 0), weights = e.map((x) => x / sum);
      // trained models were run unturned, and turned back by the whole displacement
      const n = DATA.moves.indexOf(s.move), row = on === 0 ? s.site : on === -s.move ? 'turned q, turned back' : '';
      const found = n < 0 ? undefined : (DATA.by[s.encoding][row] || [])[n];
      return { scores: raw, weights, own: PLACE - BACK, source: j - BACK, asks, looks: weights.indexOf(Math.max(...weights)), trained: found ? { own: found[0], source: found[1] } : null };
    },
    say(s) {
      const c = this.compute(s), j = PLACE + s.move, wanted = c.asks - BACK, percent = (x) => `${fixed(100 * x, 0)} %`, low = (a) => Math.min(...a), high = (a) => Math.max(...a);
      const span = (a) => (low(a) === high(a) ? `${low(a)} %` : `${low(a)} to ${high(a)} %`);
      const by = String(s.on).replace('-', '−');
      const done = s.on === 0 ? '' : turns(s) ? `, turned further by ${by}` : s.encoding === 'rotary' ? '. Turning further does nothing here: it is for the turned query' : '. Turning further does nothing here: this model does not turn';
      const built = s.move === 0 ? `on place ${c.own}, own and source’s target in one, as in an aligned patch` : `on its own target, place ${c.own}, and ${percent(c.weights[c.source])} on the source’s, place ${c.source}`;
      const third = wanted < 0 ? `; it wants place ${String(wanted).replace('-', '−')}, and there is none` : wanted === c.own || wanted === c.source ? '' : `; ${percent(c.weights[wanted])} are on place ${wanted}`;
      // a source BACK places later aims at the patched place itself
      const self = s.move === BACK && (s.site === 'ids' || (s.encoding === 'learned' && s.site === 'stream')) ? ' The source’s target is the patched place itself, and its key has gone elsewhere with it.' : '';
      const told = `${ENCODINGS[s.encoding]}; ${SITES[s.site]}, from place ${j} to place ${PLACE}${done}. The query asks from place ${c.asks}. The built head puts ${percent(c.weights[c.own])} ${built}${third}.${self} ` +
        (c.trained ? `Trained models answer with their own token in ${span(c.trained.own)} of the sequences, with the source’s in ${span(c.trained.source)}.`
          : s.move === 0 ? 'Trained models were not run without a displacement.' : 'Trained models were run with two turns only: none, and the one that takes the displacement back.');
      return (told[0].toUpperCase() + told.slice(1)).replace(/ %/g, '\u00a0%');     // a number keeps its sign on its line
    },
    panels(s) {
      const c = this.compute(s), j = PLACE + s.move, W = 380, H = 226, left = 12, wide = (W - 2 * left) / LENGTH, bottom = 164, tall = 92;
      const x = (p) => left + wide * (p + 0.5);
      let g = text(4, 14, `weights of the query at place ${PLACE}, built head`);
      c.weights.forEach((w, p) => {
        const colour = p === c.own ? BLUE : p === c.source ? ORANGE : INK;
        g += `<rect x="${fixed(x(p) - wide * 0.42)}" y="${fixed(bottom - tall * w)}" width="${fixed(wide * 0.84)}" height="${fixed(Math.max(tall * w, 0.6))}" fill="${colour}" fill-opacity=".85"/>`;
      });
      // from where the query asks, an arrow to the place that it wants
      const tip = Math.max(4, x(c.asks - BACK)), tail = x(c.asks), y = 56;
      g += line(tail, y, tip + 5, y, `stroke="${INK}" stroke-width="1.6"`) + `<path d="M${fixed(tip)} ${y}l8 -4v8z" fill="${INK}"/><path d="M${fixed(tail)} ${y - 6}v12" stroke="${INK}" stroke-width="1.6"/>` +
        text(Math.min(W - 62, Math.max(62, tail)), y - 12, `asks from ${c.asks}: 3 back`, 'text-anchor="middle" font-size="12"');
      g += line(left, bottom, W - left, bottom, `stroke="${INK}" stroke-opacity=".6"`);
      [0, 8, 16, 24, 31].forEach((p) => { g += text(x(p), bottom + 16, p, 'text-anchor="middle" font-size="12"'); });
      const mark = (p, colour, label, row, shape) => shape(x(p), bottom + 27 + 18 * row, colour) + text(x(p) + (p > 20 ? -9 : 9), bottom + 31 + 18 * row, label, `text-anchor="${p > 20 ? 'end' : 'start'}" font-size="12"`);
      const disc = (cx, cy, colour) => `<circle cx="${fixed(cx)}" cy="${cy}" r="5" fill="${colour}"/>`;
      const box = (cx, cy, colour) => `<rect x="${fixed(cx - 5)}" y="${cy - 5}" width="10" height="10" fill="${colour}"/>`;
      g += mark(c.own, BLUE, s.move ? `own target, ${c.own}` : `own and source’s target, ${c.own}`, 0, disc);
      if (s.move) g += mark(c.source, ORANGE, `source’s target, ${c.source}`, 1, box);

      const V = s.on && !turns(s) ? 128 : 108, from = 108, to = W - 60, at = (v) => from + (to - from) * v / 100, mean = (a) => a.reduce((p, q) => p + q, 0) / a.length;
      let h = text(4, 14, c.trained ? 'answers of trained models, a mark for each seed' : s.move ? 'trained models: not run with this turn' : 'trained models: not run without a displacement');
      [['own', 'own token', BLUE, 40, disc], ['source', 'source’s token', ORANGE, 68, box]].forEach(([key, label, colour, row, shape]) => {
        h += text(4, row + 4, label, 'font-size="12"') + line(from, row, to, row, `stroke="${INK}" stroke-opacity=".35"`);
        if (c.trained) h += c.trained[key].map((v) => shape(at(v), row, colour)).join('') + text(W - 4, row + 4, `${fixed(mean(c.trained[key]), 0)} %`, 'text-anchor="end" font-size="12"');
      });
      [0, 50, 100].forEach((v) => { h += line(at(v), 30, at(v), 78, `stroke="${INK}" stroke-opacity=".2"`) + text(at(v), 96, `${v} %`, 'text-anchor="middle" font-size="12"'); });
      if (s.on && !turns(s)) h += text(4, 122, `turned further by ${String(s.on).replace('-', '−')}: does nothing here`, 'font-size="12"');
      const told = this.say(s);
      return [panel(W, H, `Weights of the patched query at place ${PLACE} over 32 keys; source at place ${j}. ${told}`, g),
        panel(W, V, c.trained ? `Shares of own and source answers of the trained models. ${told}` : 'No measured answers for this choice.', h)];
    },
  });
})(globalThis.PosFig);
