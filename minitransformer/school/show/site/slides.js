// Slides: each fills the screen. The current one is the one in view, however the reader got there.
"use strict";

const LARGEST = 1.7, SMALLEST = 0.5; // what is still too large can be scrolled

document.addEventListener("DOMContentLoaded", () => {
  const slides = [...document.querySelectorAll("section.slide")];
  const named = () => slides.findIndex((slide) => `#${slide.id}` === location.hash);
  const seen = () => {
    const below = slides.findIndex((slide) => slide.getBoundingClientRect().top > innerHeight / 2);
    return Math.max(0, (below < 0 ? slides.length : below) - 1);
  };
  const address = (i) => {
    if (i !== named()) history.replaceState(null, "", `#${slides[i].id}`);
  };
  const go = (i) => {
    const slide = slides[Math.min(Math.max(i, 0), slides.length - 1)];
    address(slides.indexOf(slide));
    slide.scrollIntoView({ block: "start", behavior: "instant" });
    slide.focus({ preventScroll: true });
  };

  const wide = (slide) => [slide, ...slide.querySelectorAll(".wide, .math.block, pre")].some((part) => part.scrollWidth > part.clientWidth + 2);
  const enlarge = (slide, body) => {
    let zoom = LARGEST;
    for (; zoom >= SMALLEST; zoom -= 0.1) {
      body.style.zoom = zoom;
      if (slide.offsetHeight <= innerHeight && !wide(slide)) break;
    }
    return zoom;
  };
  const fit = () => {
    const shown = named();
    for (const slide of slides) {
      const body = slide.querySelector(".body");
      const pictures = [...body.querySelectorAll("img")].filter((picture) => picture.naturalWidth > 1.9 * picture.naturalHeight);
      body.classList.toggle("stacked", pictures.length > 0);
      const beside = enlarge(slide, body);
      if (beside < 1.4 && body.classList.contains("both") && !pictures.length) { // what is wide has more room below the text
        body.classList.add("stacked");
        if (enlarge(slide, body) <= beside) {
          body.classList.remove("stacked");
          enlarge(slide, body);
        }
      }
    }
    if (shown >= 0) go(shown);
  };
  addEventListener("load", () => {
    fit(); // the pictures have their sizes now
    addEventListener("resize", fit);
    document.fonts.addEventListener("loadingdone", fit);
    addEventListener("scroll", () => address(seen()));
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, button") && !event.key.startsWith("Page")) { // which a clicker sends
      const left = event.key === "Escape" || (event.key === "Enter" && !event.target.closest("button"));
      if (left) go(seen()); // the keys turn slides again
      return;
    }
    const to = {
      ArrowRight: () => seen() + 1, PageDown: () => seen() + 1, " ": () => seen() + 1,
      ArrowLeft: () => seen() - 1, PageUp: () => seen() - 1,
      Home: () => 0, End: () => slides.length - 1,
    }[event.key];
    if (!to) return;
    event.preventDefault();
    go(to());
  });
});
