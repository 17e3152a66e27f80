// Where a number comes from, written out: the twin of terms.py. A term is the index of a number in a list, a text for a
// constant, or [sign or function, part, ...]. written() returns [text, how tightly it binds].

const STRENGTH = { ">": 1, ">=": 1, "<": 1, "<=": 1, "==": 1, "!=": 1, "&": 2, "+": 3, "-": 3, "*": 4, "/": 4, negative: 5, "**": 6 };
const SIGNS = { "-": ` ${MINUS} `, "*": "·", "**": "^", "==": " = ", "!=": " ≠ ", ">=": " ≥ ", "<=": " ≤ " }; // others stand as they are
const ATOM = 7;
const LONGEST = 12; // a sum with more terms shows only its first terms and its last

function written(term, numbers) {
  if (!Array.isArray(term)) {
    const text = typeof term === "string" ? readable(toNumber(term), /^-?\d+$/.test(term) ? "int" : "float64") : numbers[term];
    return [text, text.startsWith(MINUS) ? STRENGTH.negative : text.includes("·") ? STRENGTH["*"] : ATOM];
  }
  const [symbol, ...parts] = term;
  const texts = some(parts, numbers);
  const strength = STRENGTH[symbol];
  if (strength === undefined) return [`${symbol}(${texts.map(([text]) => text).join(", ")})`, ATOM];
  if (symbol === "negative") return [MINUS + bracketed(...texts[0], strength + 1), strength];
  const sign = SIGNS[symbol] ?? ` ${symbol} `;
  const whole = texts.reduce((before, [text, own], i) => {
    if (i === 0) return bracketed(text, own, strength + (symbol === "**" ? 1 : 0));
    if (symbol === "+" && text.startsWith(MINUS)) return `${before} ${MINUS} ${text.slice(1)}`;
    if (text.startsWith(MINUS) && strength > STRENGTH["&"]) return `${before}${sign}(${text})`;
    if (symbol === "*" && !Array.isArray(parts[i])) return before + sign + text;
    return before + sign + bracketed(text, own, strength + 1);
  }, "");
  return [whole, strength];
}

function some(parts, numbers) {
  if (parts.length <= LONGEST) return parts.map((part) => written(part, numbers));
  const first = parts.slice(0, LONGEST / 2).map((part) => written(part, numbers));
  return [...first, [`… ${parts.length - first.length - 1} more …`, ATOM], written(parts.at(-1), numbers)];
}

const OPERATIONS = {
  "+": (...x) => x.reduce((a, b) => a + b),
  "-": (a, b) => a - b,
  "*": (...x) => x.reduce((a, b) => a * b),
  "/": (a, b) => a / b,
  "**": (a, b) => a ** b,
  "&": (a, b) => a & b,
  ">": (a, b) => Number(a > b),
  ">=": (a, b) => Number(a >= b),
  "<": (a, b) => Number(a < b),
  "<=": (a, b) => Number(a <= b),
  "==": (a, b) => Number(a === b),
  "!=": (a, b) => Number(a !== b),
  negative: (a) => -a,
};

// The value of a term with these numbers; NaN for a function that browsers lack, such as erf.
function evaluated(term, numbers) {
  if (!Array.isArray(term)) return typeof term === "number" ? numbers[term] : toNumber(term);
  const [sign, ...parts] = term;
  return (OPERATIONS[sign] ?? Math[sign] ?? (() => NaN))(...parts.map((part) => evaluated(part, numbers)));
}

const bracketed = (text, own, needed) => (own >= needed ? text : `(${text})`);

// A number with four significant digits: 2, −0.7071, 6.03·10⁻⁶, −∞. kind: the dtype; an integer keeps its digits.
function readable(x, kind = "float64") {
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x < 0 ? `${MINUS}∞` : "∞";
  if (x === 0) return "0";
  const sign = x < 0 ? MINUS : "";
  if (!kind.startsWith("float")) return sign + Math.abs(x).toFixed(0);
  const [digits, power] = fourDigits(Math.abs(x));
  if (power >= -4 && power < 4) return sign + trimZeros((Number(digits) * 10 ** power).toFixed(3 - power));
  const superscript = String(power).replace(/[-\d]/g, (letter) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(letter)]);
  const mantissa = trimZeros(digits);
  return sign + (mantissa === "1" ? `10${superscript}` : `${mantissa}·10${superscript}`);
}

// The four leading digits and the power of ten. As in Python, a tie rounds to the even digit.
function fourDigits(x) {
  const [exact, before] = x.toExponential(60).split("e");
  let [digits, power] = x.toExponential(3).split("e");
  if (/^50*$/.test(exact.slice(5)) && "02468".includes(exact[4])) [digits, power] = [exact.slice(0, 5), before];
  return [digits, Number(power)];
}

function trimZeros(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
