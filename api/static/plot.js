const LIGHT = ["#0072b2", "#b35000", "#00795c", "#a8487f", "#6b5b00", "#3d6fb0", "#8c3b3b"];
const DARK = ["#56b4e9", "#e69f00", "#3ecfa5", "#e18fbc", "#f0e442", "#9db8f2", "#f08d8d"];

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const of = (name) => style.getPropertyValue(name).trim();
  return { ink: of("--ink"), soft: of("--soft"), line: of("--line"), accent: of("--accent"), lines: dark ? DARK : LIGHT };
}

function newest(chart) {
  const last = chart.data[0].length - 1;
  if (chart.cursor.left < 0 && chart.legend.idx !== last) chart.setLegend({ idx: last });
}

export function draw(place, data, series, xLabel, yText, range) {
  const palette = colours();
  const axis = { stroke: palette.soft, grid: { stroke: palette.line, width: 1 }, ticks: { stroke: palette.line, width: 1 } };
  const size = () => ({ width: place.clientWidth, height: 300 });
  const chart = new uPlot(
    {
      ...size(),
      scales: { x: { time: false }, ...(range && { y: { range: (_, low, high) => range(low, high) } }) },
      series: [{ label: xLabel }, ...series],
      axes: [
        { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] },
        { ...axis, size: 62, values: (_, ticks) => ticks.map(yText) },
      ],
      cursor: { points: { size: 6 } },
      hooks: { setLegend: [newest] },
    },
    data,
    place,
  );
  new ResizeObserver(() => chart.setSize(size())).observe(place);
  return chart;
}
