/* The front end that all figures of the book share.
 *
 * A classic script without imports or exports, so that the same file runs in the static page (from
 * file:// too), inlined in a notebook's output, as anywidget's module, and in Python through QuickJS,
 * where it draws the picture that stands in the page without scripts and gives tests the numbers.
 *
 * A figure is pure:   PosFig.define(kind, { title, controls, fix?, compute, say, panels })
 *   controls        [{ name, label, value, … }] of type range (the default), check, choice or order
 *   fix(s)          repairs a state whose parts do not fit together
 *   compute(s)      the numbers            say(s)  one sentence: what is seen now
 *   panels(s)       [svg, …]               Only mount() touches the DOM.
 */
(function (root) {
  'use strict';
  const figures = (root.PosFig && root.PosFig.figures) || {};

  /* ---- drawing helpers ------------------------------------------------------------------------- */
  // Both accents keep 3:1 against white and against the dark theme's background; a colour-blind
  // reader tells them apart (orange and blue), and no figure relies on colour alone.
  const ORANGE = '#d9541a', BLUE = '#1f83d6', INK = 'currentColor';
  const fixed = (x, digits = 2) => {
    const t = Number(x).toFixed(digits);
    return /^-0(\.0+)?$/.test(t) ? t.slice(1) : t;
  };
  const escape = (t) => String(t).replace(/[&<>"']/g,
    (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }[c]));
  const panel = (width, height, label, body) =>
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escape(label)}" ` +
    // beside each other, panels share the line in proportion to their width: letters keep one size
    `style="flex:${width} 1 ${Math.round(width * 0.72)}px;max-width:${Math.round(width * 1.15)}px" font-family="system-ui,sans-serif" font-size="13" fill="none" stroke="none">${body}</svg>`;
  const line = (x1, y1, x2, y2, more) =>
    `<line x1="${fixed(x1)}" y1="${fixed(y1)}" x2="${fixed(x2)}" y2="${fixed(y2)}" ${more}/>`;
  const text = (x, y, t, more = '') => `<text x="${fixed(x)}" y="${fixed(y)}" fill="${INK}" ${more}>${escape(t)}</text>`;

  /* ---- state ----------------------------------------------------------------------------------- */
  const isOrder = (v, n) => Array.isArray(v) && v.length === n && v.slice().sort((a, b) => a - b).every((x, i) => x === i);
  const top = (c, s) => (typeof c.max === 'function' ? c.max(s) : c.max);     // of a range; may depend on controls above it
  const allowed = {
    range: (c, v, s) => {
      const x = Number(v);
      if (v === '' || !Number.isFinite(x)) return c.value;
      const stepped = c.min + Math.round((x - c.min) / c.step) * c.step;
      return Math.min(top(c, s), Math.max(c.min, Number(stepped.toFixed(10))));
    },
    check: (c, v) => (typeof v === 'boolean' ? v : c.value),
    choice: (c, v) => (c.options.some(([key]) => key === v) ? v : c.value),
    order: (c, v, s) => (isOrder(v, c.items(s).length) ? v.slice() : c.items(s).map((_, i) => i)),
  };
  const typeOf = (c) => c.type || 'range';
  /* A complete, legal state: what is missing or not allowed becomes the control's own value. */
  function complete(kind, given) {
    const s = {};
    for (const c of figures[kind].controls) {
      const has = given && Object.prototype.hasOwnProperty.call(given, c.name);
      s[c.name] = allowed[typeOf(c)](c, has ? given[c.name] : c.value, s);
    }
    return s;
  }
  const write = (v) => (Array.isArray(v) ? v.join('-') : typeof v === 'boolean' ? (v ? 'on' : 'off') : String(v));
  const read = (c, t) => ({ order: () => t.split('-').map(Number), check: () => (t === 'on' ? true : t === 'off' ? false : t) }[typeOf(c)] ||
    (() => t))();

  /* ---- what Python calls through QuickJS ------------------------------------------------------- */
  const compute = (kind, s) => figures[kind].compute(complete(kind, s));
  const say = (kind, s) => figures[kind].say(complete(kind, s));
  const draw = (kind, s) => figures[kind].panels(complete(kind, s));
  const controls = (kind) => figures[kind].controls.map((c) => c.name);

  /* One picture of all panels, dark ink on white: for saving. */
  function sheet(kind, s) {
    let x = 0, height = 0, body = '';
    for (const svg of draw(kind, s)) {
      const [, w, h] = /viewBox="0 0 ([\d.]+) ([\d.]+)"/.exec(svg).map(Number);
      body += svg.replace('<svg ', `<svg x="${x}" width="${w}" height="${h}" `);
      x += w; height = Math.max(height, h);
    }
    const lines = say(kind, s).split(' ').reduce((all, word) => {
      const longer = `${all[all.length - 1]} ${word}`.trim();
      return longer.length * 6.6 < x - 16 ? [...all.slice(0, -1), longer] : [...all, word];
    }, ['']);
    const note = lines.map((t, i) => `<text x="8" y="${height + 18 + 16 * i}" fill="#222" font-family="system-ui,sans-serif" font-size="12">${escape(t)}</text>`).join('');
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${x}" height="${height + 12 + 16 * lines.length}" color="#222">` +
      `<rect width="100%" height="100%" fill="#fff"/>${body}${note}</svg>`;
  }

  /* ---- in the page ----------------------------------------------------------------------------- */
  const CSS = `
:host{display:block;color:inherit;margin:1em 0;font-size:1rem}
.panels{display:flex;flex-wrap:wrap;gap:.5rem 1rem;justify-content:center}
.panels svg{min-width:0;height:auto;overflow:visible}
.controls{max-width:34rem;margin:.5rem auto;display:grid;gap:.4rem}
.row{display:grid;grid-template-columns:minmax(8rem,12rem) 1fr auto;gap:.1rem .75rem;align-items:center}
.words{display:flex;flex-wrap:wrap;gap:.35rem;align-items:center}
label,output,legend,.label{font-size:.9em}
output{font-variant-numeric:tabular-nums;text-align:right;min-width:3em}
fieldset{border:0;padding:0;margin:0;min-width:0}legend{padding:0;margin-bottom:.25rem}
input[type=range]{width:100%;min-height:1.6rem;margin:0;accent-color:${BLUE};cursor:pointer}
input[type=checkbox]{width:1.4rem;height:1.4rem;margin:0;accent-color:${BLUE};justify-self:start}
select{font:inherit;font-size:.9em;color:#111;background:#fff;border:1px solid #777;border-radius:4px;min-height:2rem;max-width:100%}
.say{margin:.5rem auto;text-align:center;font-size:.9em;max-width:40rem;min-height:3em}
button{font:inherit;font-size:.9em;color:inherit;background:none;border:1px solid currentColor;border-radius:4px;padding:.2em .7em;min-height:2rem;cursor:pointer}
button[aria-pressed=true]{outline:2px solid ${BLUE};outline-offset:1px}
:focus-visible{outline:3px solid ${ORANGE};outline-offset:2px;border-radius:4px}
.foot{display:flex;flex-wrap:wrap;gap:.5rem;justify-content:center}
@media (max-width:30rem){.row{grid-template-columns:1fr auto}.row output{order:2}.row input[type=range]{order:3;grid-column:1/-1;min-height:2.2rem}}
@media print{.controls,.foot{display:none}.say{min-height:0}}`;

  const markup = {
    range: (c, id) => `<div class="row"><label for="${id}">${escape(c.label)}</label>` +
      `<input id="${id}" name="${c.name}" type="range" min="${c.min}" step="${c.step}"><output for="${id}"></output></div>`,
    check: (c, id) => `<div class="row"><label for="${id}">${escape(c.label)}</label><input id="${id}" name="${c.name}" type="checkbox"></div>`,
    choice: (c, id) => `<div class="row"><label for="${id}">${escape(c.label)}</label><select id="${id}" name="${c.name}">` +
      c.options.map(([key, name]) => `<option value="${escape(key)}">${escape(name)}</option>`).join('') + '</select></div>',
    order: (c) => `<fieldset data-order="${c.name}"><legend>${escape(c.label)}: pick one, then move it with the buttons or the arrow keys</legend>` +
      '<div class="words"></div><div class="words" style="margin-top:.35rem"><button type="button" data-move="-1">← Move left</button>' +
      '<button type="button" data-move="1">Move right →</button><button type="button" data-next>Next order</button></div></fieldset>',
  };

  /* The next permutation in the order of a dictionary; after the last comes the first. */
  function following(order) {
    const a = order.slice();
    let i = a.length - 2;
    while (i >= 0 && a[i] > a[i + 1]) i--;
    if (i < 0) return a.reverse();
    let j = a.length - 1;
    while (a[j] < a[i]) j--;
    [a[i], a[j]] = [a[j], a[i]];
    return a.slice(0, i + 1).concat(a.slice(i + 1).reverse());
  }

  let mounted = 0;
  /* Builds the figure inside a shadow root; onchange(state) is called after each change by the reader. */
  function mount(host, kind, initial, onchange) {
    const figure = figures[kind], start = complete(kind, initial), id = `pf${++mounted}-`;
    let s = complete(kind, initial);
    (host.host || host).setAttribute('data-lm-suppress-shortcuts', 'true');   // else JupyterLab takes the arrow keys
    host.innerHTML = `<style>${CSS}</style><div role="group" aria-label="${escape(figure.title)}"><div class="panels"></div>` +
      `<p class="say" aria-live="polite"></p><div class="controls">` +
      figure.controls.map((c) => markup[typeOf(c)](c, id + c.name)).join('') +
      '</div><div class="foot"><button type="button" data-reset>Reset</button><button type="button" data-save>Save picture</button></div></div>';
    const one = (query) => host.querySelector(query);
    const picked = {};
    const show = {
      range: (c) => {
        const el = one(`[name=${c.name}]`), shown = (c.step < 1 ? fixed(s[c.name]) : String(s[c.name])) + (c.unit ? ` ${c.unit}` : '');
        el.max = top(c, s); el.value = s[c.name]; el.nextElementSibling.textContent = shown; el.setAttribute('aria-valuetext', shown);
      },
      check: (c) => { one(`[name=${c.name}]`).checked = s[c.name]; },
      choice: (c) => { one(`[name=${c.name}]`).value = s[c.name]; },
      order: (c) => {
        const box = one(`[data-order=${c.name}] .words`), items = c.items(s), inside = box.contains(host.activeElement);
        if (!(picked[c.name] < items.length)) picked[c.name] = 0;
        box.innerHTML = s[c.name].map((item, place) => `<button type="button" data-item="${item}" aria-pressed="${item === picked[c.name]}">` +
          `${escape(items[item])}</button>`).join('');
        if (inside) one(`[data-order=${c.name}] [data-item="${picked[c.name]}"]`).focus();
      },
    };
    const paint = () => {
      one('.panels').innerHTML = figure.panels(s).join('');
      one('.say').textContent = figure.say(s);
      for (const c of figure.controls) show[typeOf(c)](c);
    };
    const change = (patch) => { s = complete(kind, Object.assign({}, s, patch)); paint(); if (onchange) onchange(Object.assign({}, s)); };
    const move = (name, by) => {
      const a = s[name].slice(), i = a.indexOf(picked[name]), j = i + by;
      if (j < 0 || j >= a.length) return;
      [a[i], a[j]] = [a[j], a[i]];
      change({ [name]: a });
    };
    host.addEventListener('input', (e) => {
      const el = e.target, c = figure.controls.find((x) => x.name === el.name);
      change({ [c.name]: typeOf(c) === 'check' ? el.checked : typeOf(c) === 'choice' ? el.value : Number(el.value) });
    });
    host.addEventListener('click', (e) => {
      const el = e.target.closest('button');
      if (!el) return;
      const set = el.closest('[data-order]'), name = set && set.dataset.order;
      if ('reset' in el.dataset) change(start);
      else if ('save' in el.dataset) save(kind, s);
      else if ('item' in el.dataset) { picked[name] = Number(el.dataset.item); paint(); }
      else if ('move' in el.dataset) move(name, Number(el.dataset.move));
      else if ('next' in el.dataset) change({ [name]: following(s[name]) });
    });
    host.addEventListener('keydown', (e) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key], el = e.target;
      if (!by || !el.dataset || !('item' in el.dataset)) return;
      e.preventDefault();
      const name = el.closest('[data-order]').dataset.order;
      picked[name] = Number(el.dataset.item);
      move(name, by);
    });
    paint();
    return { set(patch) { s = complete(kind, Object.assign({}, s, patch)); paint(); }, get: () => Object.assign({}, s) };
  }

  function save(kind, s) {
    const url = URL.createObjectURL(new Blob([sheet(kind, s)], { type: 'image/svg+xml' }));
    const a = document.createElement('a');
    a.href = url; a.download = `${kind}.svg`; a.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  /* The address carries the state (?order.layers=2): a link shows what its sender saw. */
  const address = {
    key(el, kind) {
      const same = [...document.querySelectorAll(`pos-fig[kind="${kind}"]`)].indexOf(el);
      return same > 0 ? `${kind}${same + 1}` : kind;
    },
    read(key, kind) {
      const found = {}, q = new URLSearchParams(root.location.search);
      for (const c of figures[kind].controls) if (q.has(`${key}.${c.name}`)) found[c.name] = read(c, q.get(`${key}.${c.name}`));
      return found;
    },
    write(key, kind, s, start) {
      const q = new URLSearchParams(root.location.search);
      for (const name in s) {
        if (write(s[name]) === write(start[name])) q.delete(`${key}.${name}`); else q.set(`${key}.${name}`, write(s[name]));
      }
      const search = q.toString();
      // refused in a sandboxed output frame, which has no address of its own
      try { root.history.replaceState(null, '', (search ? `?${search}` : root.location.pathname) + root.location.hash); } catch (e) { /* as said */ }
    },
  };

  /* anywidget's view: the model's `state` and the figure follow each other. */
  function render({ model, el }) {
    const host = document.createElement('div');
    el.appendChild(host);
    const figure = mount(host.attachShadow({ mode: 'open' }), model.get('kind'), model.get('state'),
      (s) => { model.set('state', s); model.save_changes(); });
    const follow = () => figure.set(model.get('state'));
    model.on('change:state', follow);
    return () => model.off('change:state', follow);
  }

  root.PosFig = { figures, define: (kind, figure) => { figures[kind] = figure; }, compute, say, draw, sheet, controls, complete,
    mount, render, tools: { ORANGE, BLUE, INK, fixed, escape, panel, line, text } };

  /* <pos-fig kind="order" state='{"layers":2}'>picture</pos-fig>: the picture shows until the figure replaces it. */
  if (root.customElements && !root.customElements.get('pos-fig')) {
    const start = (el) => {
      const F = root.PosFig, kind = el.getAttribute('kind');    // the newest copy on the page, not the one that named the tag
      if (el.shadowRoot || !F.figures[kind]) return;            // an unknown kind keeps its picture
      try {
        const given = F.complete(kind, JSON.parse(el.getAttribute('state') || '{}')), key = address.key(el, kind);
        const sr = el.attachShadow({ mode: 'open' });
        el.figure = F.mount(sr, kind, given, (s) => {
          clearTimeout(el.later);                               // browsers limit how often the address may change
          el.later = setTimeout(() => address.write(key, kind, s, given), 200);
        });
        el.figure.set(address.read(key, kind));
      } catch (e) {
        console.error('figure', kind, e);
        if (el.shadowRoot) el.shadowRoot.innerHTML = '<slot></slot>';
      }
    };
    root.customElements.define('pos-fig', class extends root.HTMLElement {
      // Wait a turn: in the page the parser may not have read the children yet, in a notebook the figure's own script follows.
      connectedCallback() { setTimeout(() => start(this)); }
    });
  }
})(typeof globalThis !== 'undefined' ? globalThis : this);
