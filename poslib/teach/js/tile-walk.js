/* tile-walk: one key head and its group of query heads. Programs walk over the score matrix, a tile at a time;
 * counted are the bytes that they ask for and how often each key is turned. bf16 data, fp32 tables, head width 128. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const D = 128, E = 2, TABLE = 4;                       // head width; bytes of a number in Q, K, V, O and in the tables
  const WAYS = { qk: 'Q and K in registers', q: 'Q in registers, K once', separate: 'one kernel first', eager: 'eager code first' };
  const KINDS = [['rotation', 'rotating first'], ['table', 'cosines, sines'], ['q', 'Q read'], ['k', 'K read'], ['v', 'V read'], ['o', 'O written']];
  const group = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ',');
  const kib = (b) => group(b / 1024);

  const shape = (s) => {
    const bm = Number(s.bm), bn = Number(s.bn), rows = s.length / bm, cols = s.length / bn;
    const reach = Array.from({ length: rows }, (_, i) => (s.causal ? Math.min(cols, Math.ceil((i + 1) * bm / bn)) : cols));   // key tiles of a query tile
    const head = reach.reduce((a, b) => a + b, 0);
    return { bm, bn, rows, cols, reach, head, G: Number(s.group), total: head * Number(s.group) };
  };
  /* What has happened after `steps` tiles. */
  function ledger(s, z, steps) {
    const heads = Math.floor(steps / z.head), turned = new Array(z.cols).fill(s.way === 'qk' ? 0 : 1);
    let left = steps - heads * z.head, started = heads * z.rows, finished = started, at = null;
    if (s.way === 'qk') for (let j = 0; j < z.cols; j++) turned[j] = heads * z.reach.filter((r) => r > j).length;
    for (let i = 0; i < z.rows && left > 0; i++) {
      const here = Math.min(left, z.reach[i]);
      started += 1;
      if (s.way === 'qk') for (let j = 0; j < here; j++) turned[j] += 1;
      if (here === z.reach[i]) finished += 1;
      left -= here;
      at = { head: heads, row: i, col: here - 1 };
    }
    if (!at && steps) at = { head: heads - 1, row: z.rows - 1, col: z.reach[z.rows - 1] - 1 };
    const once = { eager: 10, separate: 2, q: 0, qk: 0 }[s.way] * (z.G + 1) * s.length * D * E;
    // eager code reads tables as wide as the head, in bf16, for Q and for K: rows of as many bytes
    const keyRows = s.way === 'qk' ? steps * z.bn : s.way === 'eager' ? 2 * s.length : s.length, queryRows = s.way === 'q' || s.way === 'qk' ? started * z.bm : 0;
    const bytes = { rotation: once, table: (keyRows + queryRows) * D * TABLE, q: started * z.bm * D * E, k: steps * z.bn * D * E, v: steps * z.bn * D * E, o: finished * z.bm * D * E };
    return { at, turned, bytes, table: keyRows + queryRows, sum: Object.values(bytes).reduce((a, b) => a + b, 0) };
  }

  /* Rotations of keys in all, and the widest bar of any way: bars of different ways can be compared. */
  const turns = (z, part) => part.turned.reduce((a, b) => a + b, 0) * z.bn;
  const widest = (s, z) => Math.max(...Object.keys(WAYS).flatMap((way) => Object.values(ledger({ ...s, way }, z, z.total).bytes)));

  F.define('tile-walk', {
    title: 'Tiles moving over the score matrix: bytes asked for and rotations of each key',
    controls: [
      { name: 'way', label: 'rotation', type: 'choice', value: 'qk', options: Object.entries(WAYS) },
      { name: 'causal', label: 'causal', type: 'check', value: true },
      { name: 'length', label: 'length L', unit: '', min: 256, max: 1024, step: 128, value: 512 },
      { name: 'bm', label: 'queries in a tile', type: 'choice', value: '128', options: [['128', '128'], ['64', '64'], ['32', '32']] },
      { name: 'bn', label: 'keys in a tile', type: 'choice', value: '64', options: [['32', '32'], ['64', '64'], ['128', '128']] },
      { name: 'group', label: 'query heads of the key head', type: 'choice', value: '4', options: [['1', '1'], ['2', '2'], ['4', '4'], ['8', '8']] },
      { name: 'step', label: 'tiles done', unit: '', min: 0, max: (s) => shape(s).total, step: 1, value: 11 },
    ],
    compute(s) {
      const z = shape(s), now = ledger(s, z, s.step), all = ledger(s, z, z.total);
      return { rows: z.rows, cols: z.cols, reach: z.reach, tiles: z.total, now, all, turns: turns(z, all), widest: widest(s, z) };
    },
    say(s) {
      const z = shape(s), now = ledger(s, z, s.step), all = ledger(s, z, z.total), most = Math.max(...all.turned), least = Math.min(...all.turned);
      const where = now.at ? `Query head ${now.at.head + 1} of ${z.G}, query tile ${now.at.row + 1} of ${z.rows}, key tile ${now.at.col + 1} of ${z.cols}; ${s.step} of ${z.total} tiles are done. ` : `No tile of ${z.total} is done yet. `;
      return `${where}Asked for: ${kib(now.sum)} of ${kib(all.sum)} KiB; for cosines and sines ${kib(now.bytes.table)} of ${kib(all.bytes.table)}. ` +
        (s.way === 'qk' ? `In the end a key has been turned ${most === least ? `${most} times` : `${least} to ${most} times`}` : 'Each key is turned once, before the walk') +
        `: ${group(turns(z, all))} turns of keys, ${fixed(3 * D * turns(z, all) / 1e6)} MFLOP.`;
    },
    panels(s) {
      const z = shape(s), now = ledger(s, z, s.step), all = ledger(s, z, z.total);
      const W = 330, left = 46, topY = 62, side = 256, w = side / z.cols, h = side / z.rows, H = topY + side + 34;
      const at = now.at, most = Math.max(1, ...all.turned);
      let m = text(left, 14, 'keys: how often turned so far', 'font-size="12"');
      const every = Math.max(1, Math.ceil(z.cols / 10));
      for (let j = 0; j < z.cols; j++) {
        m += `<rect x="${fixed(left + j * w + 0.5)}" y="${fixed(topY - 6 - 20 * now.turned[j] / most)}" width="${fixed(Math.max(1, w - 1))}" height="${fixed(20 * now.turned[j] / most)}" fill="${BLUE}"/>`;
        if (j % every === 0) m += text(left + (j + 0.5) * w, topY - 30, String(now.turned[j]), 'text-anchor="middle" font-size="12"');
      }
      for (let i = 0; i < z.rows; i++) {
        for (let j = 0; j < z.cols; j++) {
          const inside = j < z.reach[i], done = at && inside && (i < at.row || (i === at.row && j <= at.col)), here = at && i === at.row && j === at.col;
          m += `<rect x="${fixed(left + j * w)}" y="${fixed(topY + i * h)}" width="${fixed(w)}" height="${fixed(h)}" stroke="${INK}" stroke-opacity="${inside ? 0.35 : 0.08}" ` +
            (here ? `fill="${BLUE}"` : done ? `fill="${BLUE}" fill-opacity=".35"` : 'fill="none"') + '/>';
        }
      }
      if (s.causal) m += line(left, topY, left + side, topY + side, `stroke="${INK}" stroke-opacity=".6" stroke-dasharray="5 4"`);
      if (at) m += `<rect x="${left - 12}" y="${fixed(topY + at.row * h + 1)}" width="7" height="${fixed(h - 2)}" fill="${BLUE}"/>`;
      m += `<g transform="translate(14 ${topY + side / 2}) rotate(-90)">${text(0, 0, 'queries', 'text-anchor="middle" font-size="12"')}</g>` +
        text(left, topY + side + 20, at ? `scores of query head ${at.head + 1} of ${z.G}` : `scores of query head 1 of ${z.G}`, 'font-size="12"');

      const W2 = 330, x0 = 112, span = W2 - x0 - 78, big = widest(s, z);
      let b = text(6, 14, 'KiB asked for so far, of the total', 'font-size="12"');
      KINDS.forEach(([key, name], n) => {
        const y = 34 + n * 38, full = span * all.bytes[key] / big, part = span * now.bytes[key] / big;
        b += text(x0 - 8, y + 15, name, 'text-anchor="end" font-size="12"') +
          `<rect x="${x0}" y="${y}" width="${fixed(Math.max(full, 0.5))}" height="20" stroke="${INK}" stroke-opacity=".45"/>` +
          `<rect x="${x0}" y="${y}" width="${fixed(part)}" height="20" fill="${key === 'rotation' || key === 'table' ? ORANGE : BLUE}" fill-opacity=".85"/>` +
          text(x0 + full + 6, y + 15, kib(all.bytes[key]), 'font-size="12"');
      });
      b += text(x0 - 8, 34 + 6 * 38 + 16, 'in all', 'text-anchor="end" font-size="12"') + text(x0, 34 + 6 * 38 + 16, `${kib(now.sum)} of ${kib(all.sum)} KiB`, 'font-size="13" font-weight="bold"') +
        text(6, 34 + 6 * 38 + 44, 'orange: for the rotation; a cache may answer some', 'font-size="12"');
      return [
        panel(W, H, `A score matrix of ${z.rows} by ${z.cols} tiles${s.causal ? ', causal' : ''}; ${s.step} of ${z.total} tiles are done, and above each key tile stands how often it was turned.`, m),
        panel(W2, 34 + 6 * 38 + 56, `Bytes asked for so far: ${kib(now.sum)} of ${kib(all.sum)} KiB, by what they are for.`, b),
      ];
    },
  });
})(globalThis.PosFig);
