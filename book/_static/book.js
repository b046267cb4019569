/* A formula that is wider than the page scrolls; let the keyboard reach it. */
(function () {
  function update() {
    for (const el of document.querySelectorAll('.katex-display')) {
      if (el.scrollWidth > el.clientWidth) { el.tabIndex = 0; } else { el.removeAttribute('tabindex'); }
    }
  }
  addEventListener('load', update);
  addEventListener('resize', update);
})();
