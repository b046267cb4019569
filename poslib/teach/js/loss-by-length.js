/* loss-by-length: one set of losses at each place, read under two protocols.
 * The line DATA is written by `python -m poslib.lab.atlas --figure` from stored results: for each method the mean over its seeds
 * of the loss at each place (in groups), and on the last places of the same windows with full view and with a window. */
(function (F) {
  'use strict';
  const { ORANGE, BLUE, INK, fixed, panel, line, text } = F.tools;
  const DATA = {"what":"300 steps, usual settings","trained":64,"group":4,"lengths":[64,128,256,512],"methods":{"learned":{"seeds":5,"place":[2.434,2.371,2.426,2.369,2.365,2.378,2.234,2.24,2.107,2.339,2.483,2.473,2.498,2.522,2.339,2.41,2.621,2.633,2.683,2.698,2.694,2.72,2.768,2.708,2.609,2.7,2.646,2.552,2.691,2.622,2.524,2.523,2.7,2.514,2.593,2.669,2.587,2.644,2.631,2.777,2.652,2.606,2.629,2.523,2.705,2.664,2.735,2.568,2.482,2.638,2.69,2.763,2.739,2.698,2.585,2.621,2.786,2.648,2.649,2.634,2.64,2.637,2.462,2.571,2.536,2.506,2.559,2.636,2.733,2.677,2.725,2.862,2.65,2.575,2.501,2.567,2.587,2.638,2.725,2.552,2.419,2.589,2.507,2.557,2.571,2.616,2.576,2.616,2.6,2.617,2.46,2.48,2.682,2.784,2.825,2.715,2.514,2.663,2.591,2.532,2.503,2.797,2.579,2.642,2.635,2.545,2.506,2.59,2.644,2.54,2.554,2.645,2.626,2.501,2.505,2.467,2.485,2.703,2.729,2.606,2.493,2.683,2.656,2.64,2.653,2.518,2.489,2.594],"full":[2.303,2.585,2.594,2.591],"window":[2.303,2.609,2.604,2.611]},"sinusoid":{"seeds":5,"place":[2.381,2.28,2.337,2.274,2.277,2.27,2.12,2.134,1.993,2.167,2.325,2.352,2.38,2.41,2.174,2.254,2.387,2.514,2.649,2.741,2.738,2.808,2.8,2.664,2.686,2.766,2.772,2.646,2.782,2.77,2.569,2.549,2.661,2.576,2.626,2.728,2.605,2.744,2.774,2.804,2.737,2.724,2.742,2.748,2.857,2.697,2.78,2.605,2.597,2.748,2.79,2.815,2.808,2.742,2.731,2.772,2.831,2.696,2.802,2.696,2.778,2.751,2.697,2.727,2.718,2.665,2.64,2.638,2.745,2.726,2.778,2.898,2.768,2.653,2.53,2.641,2.727,2.701,2.782,2.637,2.489,2.59,2.603,2.679,2.654,2.685,2.664,2.693,2.708,2.745,2.607,2.686,2.794,2.851,2.936,2.798,2.661,2.802,2.736,2.61,2.589,2.82,2.715,2.764,2.735,2.637,2.667,2.815,2.8,2.664,2.677,2.76,2.751,2.666,2.666,2.629,2.621,2.827,2.873,2.824,2.73,2.868,2.745,2.725,2.781,2.662,2.736,2.835],"full":[2.178,2.688,2.718,2.76],"window":[2.178,2.711,2.578,2.613]},"rotary":{"seeds":5,"place":[2.282,2.086,2.098,2.093,2.079,2.103,1.922,1.911,1.767,1.914,2.06,2.126,2.137,2.216,1.958,2.016,2.036,1.996,2.053,2.025,2.068,2.088,2.182,2.008,2.039,2.241,2.205,2.202,2.418,2.4,2.274,2.22,2.276,2.205,2.317,2.378,2.261,2.355,2.385,2.507,2.345,2.284,2.268,2.198,2.357,2.348,2.517,2.364,2.283,2.524,2.534,2.523,2.486,2.439,2.395,2.403,2.599,2.428,2.433,2.423,2.46,2.467,2.296,2.416,2.371,2.418,2.364,2.429,2.478,2.483,2.474,2.633,2.518,2.41,2.331,2.437,2.465,2.44,2.495,2.507,2.406,2.589,2.561,2.559,2.546,2.538,2.657,2.684,2.593,2.707,2.536,2.599,2.667,2.81,2.798,2.612,2.481,2.541,2.604,2.541,2.566,2.826,2.507,2.602,2.575,2.517,2.393,2.705,2.777,2.534,2.611,2.651,2.661,2.573,2.518,2.514,2.499,2.718,2.749,2.568,2.545,2.748,2.741,2.657,2.666,2.454,2.488,2.641],"full":[1.947,2.196,2.453,2.618],"window":[1.947,1.953,1.953,1.953]},"alibi":{"seeds":5,"place":[2.379,2.249,2.294,2.249,2.258,2.248,2.107,2.113,1.978,2.167,2.312,2.35,2.373,2.409,2.164,2.229,2.242,2.214,2.278,2.232,2.263,2.258,2.357,2.195,2.153,2.245,2.162,2.113,2.286,2.249,2.192,2.231,2.279,2.137,2.22,2.268,2.149,2.223,2.281,2.448,2.243,2.182,2.216,2.126,2.271,2.194,2.316,2.05,2.039,2.229,2.297,2.293,2.313,2.299,2.248,2.205,2.377,2.246,2.247,2.165,2.283,2.282,2.016,2.167,2.133,2.145,2.162,2.225,2.318,2.332,2.317,2.42,2.286,2.197,2.122,2.163,2.215,2.249,2.279,2.102,1.996,2.122,2.102,2.111,2.09,2.145,2.144,2.141,2.224,2.19,2.063,2.094,2.288,2.395,2.465,2.337,2.113,2.259,2.175,2.224,2.102,2.39,2.165,2.222,2.201,2.139,2.029,2.183,2.263,2.066,2.163,2.266,2.266,2.071,2.108,2.097,2.082,2.289,2.323,2.195,2.048,2.304,2.288,2.26,2.241,2.036,2.09,2.191],"full":[2.169,2.176,2.18,2.182],"window":[2.169,2.172,2.172,2.172]},"t5":{"seeds":5,"place":[2.391,2.265,2.306,2.266,2.27,2.276,2.12,2.136,1.999,2.21,2.362,2.386,2.417,2.437,2.218,2.271,2.305,2.273,2.336,2.314,2.349,2.359,2.455,2.305,2.229,2.302,2.289,2.238,2.393,2.363,2.269,2.305,2.392,2.245,2.329,2.391,2.291,2.347,2.41,2.544,2.391,2.326,2.371,2.286,2.416,2.331,2.49,2.215,2.217,2.397,2.434,2.441,2.454,2.414,2.344,2.366,2.507,2.397,2.383,2.294,2.404,2.381,2.178,2.291,2.29,2.293,2.294,2.373,2.461,2.466,2.484,2.602,2.421,2.345,2.275,2.339,2.393,2.369,2.435,2.291,2.136,2.286,2.277,2.319,2.254,2.337,2.328,2.327,2.349,2.376,2.227,2.283,2.456,2.564,2.604,2.437,2.24,2.395,2.365,2.325,2.276,2.543,2.346,2.364,2.349,2.299,2.213,2.339,2.418,2.216,2.331,2.44,2.443,2.237,2.27,2.262,2.263,2.447,2.482,2.395,2.244,2.439,2.498,2.458,2.417,2.211,2.237,2.335],"full":[2.206,2.278,2.336,2.355],"window":[2.206,2.254,2.252,2.252]}}};
  const NAMES = { none: 'no positions', learned: 'learned table', sinusoid: 'sinusoids', rotary: 'rotary', alibi: 'ALiBi', t5: 'T5 bias', shaw: 'Shaw', kerple: 'KERPLE' };
  const { group: G, trained: L, methods: M } = DATA, ALL = Object.keys(M), LAST = G * M[ALL[0]].place.length;
  const options = ALL.map((m) => [m, NAMES[m]]), mean = (a) => a.reduce((x, y) => x + y, 0) / a.length;
  const block = (m, T) => mean(M[m].place.slice(0, T / G)), sliding = (m, T, s) => mean(M[m].place.slice((T - s) / G, T / G));
  const values = ALL.flatMap((m) => [...M[m].place.slice(1), ...M[m].full, ...M[m].window]);
  const LOW = Math.floor(Math.min(...values) * 5) / 5, HIGH = Math.ceil(Math.max(...values) * 5 + 1) / 5;

  F.define('loss-by-length', {
    title: 'Loss at each place, and the same losses read in blocks or by a sliding window',
    controls: [
      { name: 'first', label: 'method', type: 'choice', value: ALL.includes('alibi') ? 'alibi' : ALL[0], options },
      { name: 'second', label: 'beside it', type: 'choice', value: ALL.includes('rotary') ? 'rotary' : ALL[0], options },
      { name: 'protocol', label: 'protocol', type: 'choice', value: 'block', options: [['block', 'blocks'], ['sliding', 'sliding window']] },
      { name: 'length', label: 'read length T', unit: 'bytes', min: 32, max: LAST, step: 32, value: 192 },
      { name: 'stride', label: 'stride s', unit: 'bytes', min: G, max: 32, step: G, value: 16 },
      { name: 'window', label: 'same targets, with a window', type: 'check', value: false },
    ],
    compute(s) {
      const lengths = Array.from({ length: LAST / 32 }, (_, i) => 32 * (i + 1));
      const one = (m) => ({ method: m, name: NAMES[m], seeds: M[m].seeds, place: M[m].place, block: block(m, s.length), sliding: sliding(m, s.length, s.stride),
        blocks: lengths.map((T) => block(m, T)), slides: lengths.map((T) => sliding(m, T, s.stride)),
        change: { block: block(m, s.length) - block(m, L), sliding: sliding(m, s.length, s.stride) - sliding(m, L, s.stride) }, full: M[m].full, window: M[m].window });
      return { trained: L, lengths, at: DATA.lengths, methods: [...new Set([s.first, s.second])].map(one) };
    },
    say(s) {
      const c = this.compute(s), inBlocks = s.protocol === 'block', better = (key) => c.methods.slice().sort((a, b) => a[key] - b[key])[0].name;
      const signed = (x) => (x < 0 ? '−' : '+') + fixed(Math.abs(x));
      return `Read ${s.length} bytes at a time, ${inBlocks ? 'in blocks' : `sliding by ${s.stride}`}: ` +
        c.methods.map((m) => `${m.name} ${fixed(m[s.protocol])} nats a byte (${signed(m.change[s.protocol])} against length ${c.trained})`).join(', ') + '.' +
        (c.methods.length < 2 ? '' : better('block') === better('sliding') ? ` Under both protocols ${better('block')} reads better.` :
          ` In blocks ${better('block')} reads better, sliding ${better('sliding')} does.`);
    },
    panels(s) {
      const c = this.compute(s), W = 360, H = 282, left = 38, right = W - 8, top = 26, bottom = H - 44, inBlocks = s.protocol === 'block';
      const x = (p) => left + (right - left) * p / LAST, y = (v) => bottom - (bottom - top) * (Math.min(v, HIGH) - LOW) / (HIGH - LOW);
      const colours = [BLUE, ORANGE], path = (points) => points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(' ');
      const frame = (title, below) => {
        let g = text(left, 14, title, 'font-size="12"') + text((left + right) / 2, H - 8, below, 'text-anchor="middle" font-size="12"');
        for (let v = Math.ceil(LOW * 2) / 2; v <= HIGH + 1e-9; v += 0.5) {
          g += line(left, y(v), right, y(v), `stroke="${INK}" stroke-opacity=".15"`) + text(left - 6, y(v) + 4, fixed(v, 1), 'text-anchor="end" font-size="12"');
        }
        for (let p = 0; p <= LAST; p += 128) g += text(x(p), bottom + 18, p, `text-anchor="${p === LAST ? 'end' : 'middle'}" font-size="12"`);
        return g + line(x(L), top, x(L), bottom, `stroke="${INK}" stroke-opacity=".6" stroke-dasharray="2 3"`);
      };
      const key = (i, m, at) => line(left + at, top + 8, left + at + 20, top + 8, `stroke="${colours[i]}" stroke-width="3"`) + text(left + at + 25, top + 12, m.name, 'font-size="12"');
      const from = inBlocks ? 0 : s.length - s.stride;
      let places = frame(`nats a byte at each place (${DATA.what})`, 'place in the window; shaded: what counts') +
        `<rect x="${fixed(x(from))}" y="${top}" width="${fixed(x(s.length) - x(from))}" height="${bottom - top}" fill="${INK}" fill-opacity=".1"/>`;
      c.methods.forEach((m, i) => {
        places += `<polyline points="${path(m.place.map((v, k) => [G * (k + 0.5), v]))}" stroke="${colours[i]}" stroke-width="1.6"/>` + key(i, m, 150 * i + 40);
      });
      let lengths = frame('nats a byte by read length', 'read length T; solid: blocks, dashed: sliding');
      c.methods.forEach((m, i) => {
        for (const [name, points, dash] of [['block', m.blocks, ''], ['sliding', m.slides, 'stroke-dasharray="6 4"']]) {
          const on = name === s.protocol;
          lengths += `<polyline points="${path(points.map((v, k) => [c.lengths[k], v]))}" stroke="${colours[i]}" stroke-width="${on ? 2.6 : 1.6}" stroke-opacity="${on ? 1 : 0.55}" ${dash}/>`;
        }
        lengths += `<circle cx="${fixed(x(s.length))}" cy="${fixed(y(m[s.protocol]))}" r="5" fill="${colours[i]}"/>`;
        if (s.window) {
          c.at.forEach((T, k) => {
            const px = x(T), full = y(m.full[k]), near = y(m.window[k]), size = i ? 4 : 6;
            lengths += `<path d="M ${fixed(px - size)} ${fixed(full - size)} l ${2 * size} ${2 * size} m 0 ${-2 * size} l ${-2 * size} ${2 * size}" stroke="${colours[i]}" stroke-width="2"/>` +
              `<rect x="${fixed(px - size)}" y="${fixed(near - size)}" width="${2 * size}" height="${2 * size}" stroke="${colours[i]}" stroke-width="2"/>`;
          });
        }
      });
      lengths += s.window ? text(right, top + 12, '× full view, □ window, same targets', 'text-anchor="end" font-size="12"') : '';
      const words = c.methods.map((m) => `${m.name} ${fixed(m[s.protocol])}`).join(', ');
      return [
        panel(W, H, `Loss at each place of windows of ${LAST} bytes, for ${c.methods.map((m) => m.name).join(' and ')}; a line marks the trained length, ${L}.`, places),
        panel(W, H, `Loss against the read length, in blocks and sliding. At ${s.length}: ${words} nats a byte.`, lengths),
      ];
    },
  });
})(globalThis.PosFig);
