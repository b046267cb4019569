/* position-cost: bytes, FLOPs and least time of each way to bring position into one attention layer, by the roofline.
 * The formulas are those of poslib.cost; tests compare them.  CPU: what the machine of the stored measurements reached. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const TILE = 128, START = 3e-6;                                   // seconds for each start on a GPU: an assumption
  const MODELS = {                                                  // query heads, key heads, width of a head
    llama3: ['Llama 3 8B', 32, 8, 128], llama2: ['Llama 2 7B', 32, 32, 128], llama70: ['Llama 3 70B', 64, 8, 128],
    smol: ['SmolLM2-135M', 9, 3, 64], s2: ['S2’s layer, 16 heads', 16, 16, 128],
  };
  const DEVICES = {                                                 // bytes/s, FLOP/s fp32 and bf16, bytes of memory
    a100: ['A100', 2.039e12, 19.5e12, 312e12, 80e9], h100: ['H100', 3.35e12, 67e12, 989.4e12, 80e9], h200: ['H200', 4.8e12, 67e12, 989.4e12, 141e9],
    mi300x: ['MI300X', 5.3e12, 163.4e12, 1307.4e12, 192e9], cpu: ['CPU, measured', 3.5e9, 5.6e10, 8.4e10, 25276510208],
  };
  const SIZE = { bf16: 2, fp32: 4 };
  const WAYS = ['attention itself', 'a number a lag', 'numbers as a matrix', 'vectors, row per pair', 'vectors, row per tile', 'vectors, sliding band',
    'vectors, table fetched once', 'vectors, skewed product', 'RoPE, eager', 'RoPE, one kernel', 'RoPE, q in attention, k as written'];

  /* Rows of lags that one head of one text fetches, tile by tile, under a causal mask. */
  function rows(queries, keys) {
    if (queries === 1) return { tile: keys, band: keys };
    const m = queries / TILE;                                       // whole: lengths are powers of two from 512 on
    return { tile: (m * (m - 1) / 2) * (2 * TILE - 1) + m * TILE, band: queries * (m + 1) / 2 };
  }

  function costs(s) {
    const [, H, G, d] = MODELS[s.model], e = SIZE[s.dtype], B = 2 ** s.batch, n = 2 ** s.length, m = s.phase === 'decode' ? 1 : n;
    const pairs = m * n - m * (m - 1) / 2, q = B * H * m * d * e, k = B * G * n * d * e, heads = B * H, row = d * e, r = rows(m, n);
    const tensor = B * (H + G) * m * d, tables = m * d, products = (2 * d + 1) * heads * pairs, matrix = heads * m * n;
    const way = (read, written, flops, starts, own = 0, exact = false) => ({ read, written, flops, starts, stored: own, exact });
    return [
      way(q + 2 * k, q, 4 * heads * d * pairs, 1),
      way(H * n * 4, 0, heads * pairs, 0, 0, true),
      way(H * n * 4 + heads * pairs * e, H * m * n * e, heads * pairs, 1, H * m * n * e, true),
      way(heads * pairs * row, 0, products, 0),
      way(heads * r.tile * row, 0, products, 0),
      way(heads * r.band * row, 0, products, 0),
      way(H * n * row, 0, products, 0),
      way(q + H * n * row + heads * pairs * e, matrix * e, 2 * matrix * d + heads * pairs, 1, matrix * e),
      way(5.5 * tensor * e + 4 * tables * e, 4.5 * tensor * e, 3 * tensor, 10, 0, true),
      way(tensor * e + tables * 4, tensor * e, 3 * tensor, 1, 0, true),
      way(tables * 4, 0, 3 * tensor, 0, 0, true),
    ];
  }

  const count = (x) => (x < 100 ? String(Number(x.toPrecision(2))) : x.toPrecision(3).replace(/\.0+$/, ''));
  const scaled = (x, unit, steps) => {
    if (x === 0) return `0 ${unit}`;
    let at = 0;
    while (at < steps.length - 1 && x >= 999.5) { x /= 1000; at += 1; }
    return `${x >= 99.5 ? Math.round(x) : Number(x.toPrecision(2))} ${steps[at]}${unit}`;
  };
  const bytes = (x) => scaled(x, 'B', ['', 'k', 'M', 'G', 'T', 'P', 'E']);
  const flops = (x) => scaled(x, 'FLOP', ['', 'k', 'M', 'G', 'T', 'P', 'E']);
  const grouped = (x) => String(Math.round(x)).replace(/\B(?=(\d{3})+$)/g, ',');
  const times = (x) => (x >= 1000 ? grouped(x) : count(x));
  const time = (t) => (t >= 2 * 31557600 ? `${times(t / 31557600)} years` : t >= 2 * 86400 ? `${times(t / 86400)} days` : t >= 7200 ? `${count(t / 3600)} h` :
    t >= 1 ? `${times(t)} s` : scaled(t * 1e9, 's', ['n', 'µ', 'm']));
  const power = (p) => (p < 4 ? time(10 ** p) : `10${String(p).replace(/\d/g, (c) => '⁰¹²³⁴⁵⁶⁷⁸⁹'[c])} s`);

  F.define('position-cost', {
    title: 'What each way to bring position in costs: bytes, FLOPs and time of one layer',
    controls: [
      { name: 'phase', label: 'phase', type: 'choice', value: 'prefill', options: [['prefill', 'prefill: all tokens at once'], ['decode', 'decoding: one new token']] },
      { name: 'model', label: 'heads as in', type: 'choice', value: 'llama3', options: Object.entries(MODELS).map(([key, [name]]) => [key, name]) },
      { name: 'length', label: 'length, power of 2', unit: '', min: 9, max: 20, step: 1, value: 13 },
      { name: 'batch', label: 'batch, power of 2', unit: '', min: 0, max: 8, step: 1, value: 0 },
      { name: 'dtype', label: 'number format', type: 'choice', value: 'bf16', options: [['bf16', 'bf16, two bytes'], ['fp32', 'fp32, four bytes']] },
      { name: 'device', label: 'device', type: 'choice', value: 'h100', options: Object.entries(DEVICES).map(([key, [name]]) => [key, name]) },
    ],
    compute(s) {
      const [name, bandwidth, fp32, bf16, memory] = DEVICES[s.device], rate = s.dtype === 'bf16' ? bf16 : fp32, start = s.device === 'cpu' ? 0 : START;
      const ways = costs(s).map((c, n) => {
        const moved = c.read + c.written, load = moved / bandwidth, compute = c.flops / (c.exact ? fp32 : rate), launch = c.starts * start;
        const seconds = Math.max(load, compute) + launch, most = Math.max(load, compute, launch);
        return { name: WAYS[n], read: c.read, written: c.written, bytes: moved, flops: c.flops, starts: c.starts, seconds, stored: c.stored, fits: c.stored <= memory,
          bound: most === load ? 'memory' : most === compute ? 'compute' : 'starts', intensity: moved ? c.flops / moved : null, rate: c.exact ? fp32 : rate };
      });
      return { device: name, model: MODELS[s.model][0], heads: MODELS[s.model].slice(1), tokens: 2 ** s.length, batch: 2 ** s.batch, bandwidth, rate, memory, ways };
    },
    say(s) {
      const c = this.compute(s), w = c.ways, of = (n) => `${time(w[n].seconds)} (${times(100 * w[n].seconds / w[0].seconds)} %)`;
      const toobig = w.filter((x) => !x.fits);
      return `A model, not a measurement. ${s.phase === 'prefill' ? 'Prefill' : 'One step of decoding'}, ${grouped(c.tokens)} tokens, batch ${c.batch}, ${s.dtype}, ${c.device}: ` +
        `attention itself takes ${time(w[0].seconds)} and is bound by ${w[0].bound}. Beside it, eager RoPE takes ${of(8)}, one kernel ${of(9)}; ` +
        `vectors in a band ${of(5)}, a row for each pair ${of(3)}.` +
        (toobig.length ? ` Too big for the memory: ${toobig.map((x) => x.name).join(', ')}.` : '');
    },
    panels(s) {
      const c = this.compute(s), W = 372, left = 8, right = 8, tall = 43, top = 40, H = top + tall * c.ways.length + 4;
      const seconds = c.ways.map((w) => w.seconds), high = Math.ceil(Math.log10(Math.max(...seconds))), low = Math.max(Math.floor(Math.log10(Math.min(...seconds))), high - 10);
      const x = (t) => left + ((Math.max(Math.log10(t), low) - low) / (high - low)) * (W - left - right);
      let body = text(left, 14, `least time added to one layer, ${c.device}`), step = high - low > 6 ? 2 : 1;
      for (let p = low; p <= high; p += step) {
        const last = p + step > high, first = p === low;
        body += line(x(10 ** p), top - 8, x(10 ** p), H - 4, `stroke="${INK}" stroke-opacity=".14"`) +
          text(x(10 ** p), 29, power(p), `text-anchor="${first ? 'start' : last ? 'end' : 'middle'}" font-size="11"`);
      }
      body += line(x(seconds[0]), top - 6, x(seconds[0]), H - 4, `stroke="${INK}" stroke-dasharray="4 3" stroke-opacity=".7"`);
      c.ways.forEach((w, n) => {
        const y = top + tall * n, colour = n === 0 ? INK : w.bound === 'compute' ? BLUE : ORANGE, wide = Math.max(2, x(w.seconds) - left);
        body += text(left, y + 9, `${n + 1}  ${w.name}`, 'font-size="12"') + text(W - right, y + 9, time(w.seconds), 'text-anchor="end" font-size="12" font-weight="600"') +
          `<rect x="${left}" y="${y + 14}" width="${fixed(wide)}" height="8" rx="2" fill="${colour}" fill-opacity="${w.bound === 'starts' ? 0.45 : 0.9}"/>` +
          text(left, y + 34, `${bytes(w.bytes)} · ${flops(w.flops)} · ${w.starts} start${w.starts === 1 ? '' : 's'} · ${w.fits ? `bound: ${w.bound}` : `needs ${bytes(w.stored)}: too big`}`,
            'font-size="11" fill-opacity=".85"');
      });
      // the roofline, each way a number on it
      const RW = 330, RH = 300, l = 52, b = 250, t = 34, lowI = -2, highI = 5, topF = Math.ceil(Math.log10(c.rate)) , lowF = Math.floor(Math.log10(c.bandwidth * 10 ** lowI));
      const rx = (i) => l + ((Math.min(Math.max(Math.log10(i), lowI), highI) - lowI) / (highI - lowI)) * (RW - l - 12);
      const ry = (f) => t + ((topF - Math.min(Math.max(Math.log10(f), lowF), topF)) / (topF - lowF)) * (b - t);
      const ridge = c.rate / c.bandwidth;
      let roof = text(4, 14, `roofline, ${c.device}, ${s.dtype}: ridge ${Math.round(ridge)} FLOPs a byte`, 'font-size="12"');
      for (let p = lowI; p <= highI; p += 1) {
        roof += line(rx(10 ** p), t, rx(10 ** p), b, `stroke="${INK}" stroke-opacity=".1"`);
        if (p !== -1) roof += text(rx(10 ** p), b + 16, p < 3 ? String(10 ** p) : `${10 ** (p - 3)}k`, `text-anchor="${p === highI ? 'end' : 'middle'}" font-size="11"`);
      }
      for (let p = lowF; p <= topF; p += 1) {
        roof += line(l, ry(10 ** p), RW - 12, ry(10 ** p), `stroke="${INK}" stroke-opacity=".1"`) + text(l - 5, ry(10 ** p) + 4, scaled(10 ** p, '', ['', 'k', 'M', 'G', 'T', 'P']), 'text-anchor="end" font-size="11"');
      }
      roof += `<path d="M${fixed(rx(10 ** lowI))} ${fixed(ry(c.bandwidth * 10 ** lowI))}L${fixed(rx(ridge))} ${fixed(ry(c.rate))}L${RW - 12} ${fixed(ry(c.rate))}" stroke="${INK}" stroke-width="2"/>` +
        text(l, b + 34, 'FLOPs for each byte moved', 'font-size="12"') + text(l + 5, t + 14, 'FLOPs a second', 'font-size="11"');
      const taken = [];
      c.ways.forEach((w, n) => {
        const i = w.intensity === null ? 10 ** highI : w.intensity, px = rx(i), py = ry(Math.min(w.rate, i * c.bandwidth));
        const near = taken.filter(([a, y]) => Math.abs(a - px) < 15 && Math.abs(y - py) < 22).length;
        taken.push([px, py]);
        roof += `<circle cx="${fixed(px)}" cy="${fixed(py)}" r="4" fill="${n === 0 ? INK : w.bound === 'compute' ? BLUE : ORANGE}"/>` +
          text(px + 5, py + 15 + 13 * near, n + 1, 'text-anchor="middle" font-size="12" font-weight="600"');
      });
      const all = c.ways.map((w) => `${w.name} ${time(w.seconds)}`).join(', ');
      return [panel(W, H, `Least times by the roofline: ${all}.`, body), panel(RW, RH, `Roofline of ${c.device} with a ridge at ${Math.round(ridge)} FLOPs a byte; the eleven ways stand on it by their intensity.`, roof)];
    },
  });
})(globalThis.PosFig);
