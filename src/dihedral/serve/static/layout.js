// Positions for the nodes of a drawing that never move what is there: new nodes take free places around their anchor.

const SPACING = 80; // between places, and between rings
export const STRETCH = window.innerWidth < 640 ? 1 : 1.6; // names are wider than high, and so are screens
const FAN = 0.45 * Math.PI; // half the angle in which an expanded node opens

const cellOf = ({ x, y }) => `${Math.round(x / (SPACING * STRETCH))},${Math.round(y / SPACING)}`;

// Whether a place is free, for the nodes at `taken`.
function freePlaces(taken) {
  const cells = Map.groupBy(taken, cellOf);
  return (place) => {
    const [column, row] = cellOf(place).split(",").map(Number);
    for (let i = column - 1; i <= column + 1; i++) {
      for (let j = row - 1; j <= row + 1; j++) {
        for (const other of cells.get(`${i},${j}`) ?? []) {
          if (Math.hypot((other.x - place.x) / STRETCH, other.y - place.y) < 0.8 * SPACING) return false;
        }
      }
    }
    return true;
  };
}

// The first `count` free places around `anchor`, ring by ring, sorted by angle. `direction` is the angle of the middle of
// the fan in which they lie, or null for the complete circle.
export function placesAround(anchor, count, taken, direction = null) {
  const isFree = freePlaces(taken);
  const width = direction === null ? Math.PI : FAN;
  const found = [];
  for (let ring = 1; found.length < count; ring++) {
    const radius = ring * 1.3 * SPACING;
    const slots = Math.max(1, Math.floor(2 * width * radius / SPACING));
    const free = Array.from({ length: slots }, (_, i) => {
      const angle = (2 * (i + 0.5) / slots - 1) * width;
      const turned = angle + (direction ?? 0);
      return { x: anchor.x + STRETCH * radius * Math.cos(turned), y: anchor.y + radius * Math.sin(turned), angle, ring };
    }).filter(isFree);
    const wanted = Math.min(free.length, count - found.length); // spread evenly in the last ring
    for (let i = 0; i < wanted; i++) found.push(free[Math.floor((i + 0.5) * free.length / wanted)]);
  }
  return found.sort((a, b) => a.angle - b.angle || a.ring - b.ring).map(({ x, y }) => ({ x, y }));
}
