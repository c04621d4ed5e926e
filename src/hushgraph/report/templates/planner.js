
"use strict";
// Every figure was computed beforehand: this looks up what belongs to the places of the sliders, and shows it.
(() => {
  const part = (name) => document.getElementById(name);
  const data = JSON.parse(part("data").textContent);
  const given = data.axes.map((axis) => axis.chosen);
  let at = given.slice();

  const point = (places) =>
    data.points[places.reduce((before, one, i) => before * data.axes[i].texts.length + one, 0)];
  const noise = (one) => one.texts[data.keys.indexOf("noise_on_mean")];

  const draw = (axis, i) => {
    const name = "profile-" + axis.name;
    const along = axis.texts.map((_, one) => point(at.map((other, j) => (j === i ? one : other))));
    const priced = along.map((one, k) => [axis.x[k], one.y]).filter(([, y]) => y !== null);
    part(name + "-line").setAttribute("points", priced.map((xy) => xy.join(",")).join(" "));
    [...part(name + "-dots").children].forEach((dot, k) => {
      dot.setAttribute("visibility", along[k].y === null ? "hidden" : "visible");
      if (along[k].y !== null) dot.setAttribute("cy", along[k].y);
    });
    const x = axis.x[at[i]], here = along[at[i]];
    part(name + "-guide").setAttribute("x1", x);
    part(name + "-guide").setAttribute("x2", x);
    part(name + "-mark").setAttribute("visibility", here.y === null ? "hidden" : "visible");
    part(name + "-value").setAttribute("x", x);
    part(name + "-value").textContent = noise(here);
    if (here.y !== null) {
      part(name + "-mark").setAttribute("cx", x);
      part(name + "-mark").setAttribute("cy", here.y);
      part(name + "-value").setAttribute("y", here.y - 11);
    }
    part(name + "-desc").textContent = axis.texts
      .map((text, k) => axis.symbol + " " + text + ": " + noise(along[k])).join(", ");
    part("out-" + axis.name).textContent = axis.texts[at[i]];
    part("knob-" + axis.name).value = at[i];
    part("knob-" + axis.name).setAttribute("aria-valuetext", axis.texts[at[i]]);
  };

  const show = () => {
    const here = point(at);
    const moving = data.axes.map((axis, i) => [axis, i]).filter(([axis]) => axis.texts.length > 1);
    moving.forEach(([axis, i]) => draw(axis, i));
    data.keys.forEach((key, k) => { part("now-" + key).textContent = here.texts[k]; });
    part("now").textContent =
      moving.map(([axis, i]) => axis.symbol + " " + axis.texts[at[i]]).join(", ") + ": " + here.cost;
    const flags = [...data.command, ...data.axes.map((axis, i) => axis.flags[at[i]])].filter((flag) => flag);
    part("command").replaceChildren(...flags.flatMap((flag) => {
      const span = document.createElement("span");
      span.textContent = flag;
      return [span, " "];
    }));
  };

  data.axes.forEach((axis, i) => {
    const knob = part("knob-" + axis.name);
    if (!knob) return;
    knob.hidden = false;
    knob.addEventListener("input", () => { at[i] = Number(knob.value); show(); });
  });
  part("controls").hidden = false;
  part("reset").addEventListener("click", () => { at = given.slice(); show(); });
  // A browser may bring back the places that the sliders had before the page was loaded again.
  show();
})();
