// Predictions: each field is compared exactly with what it should be. What is not read is left to the reader.
"use strict";

const NUMBER = /[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?:\s*\/\s*\d+)?|nan|inf|∞)/gi;
const FRACTIONS = { "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4" };
const SIGN_WORDS = { positive: "+", negative: "-", zero: "0" };

const plainly = (text) => text.trim().replaceAll("−", "-").replace(/[½⅓⅔¼¾]/g, (sign) => FRACTIONS[sign]);

// The pieces of a text, or null if it holds anything but pieces and what separates them.
function pieces(text, pattern, between) {
  return between.test(text.replace(pattern, " ")) ? text.match(pattern) : null;
}

// How the texts of a kind are read: as a list, or null.
const READ = {
  number: (text) => READ.numbers(text.replace(/(\d),(?=\d{3}(?!\d))/g, "$1")),
  numbers: (text) => pieces(plainly(text), NUMBER, /^(?:[\s()[\]{},;x×]|by)*$/),
  signs: (text) =>
    pieces(plainly(text).replace(/positive|negative|zero/gi, (word) => SIGN_WORDS[word.toLowerCase()]), /[-+0]/g, /^(?:[\s()[\],;]|and)*$/),
  choice: (text) => [text],
};
const WANTED = { number: "a number", numbers: "a list of numbers", signs: "a list of signs" };

function valueOf(text) {
  const [above, below = "1"] = text.toLowerCase().replace(/∞|inf/, "Infinity").split("/");
  return Number(above) / Number(below); // of "nan": NaN
}

// Whether a number is the expected one, to as many places as that has.
function sameNumber(given, expected) {
  const [a, b] = [valueOf(given), valueOf(expected)];
  if (!Number.isFinite(b)) return Object.is(a, b);
  const within = /e/.test(expected) ? Math.abs(b) / 20 : expected.includes("/") ? 0.006 : placesOf(expected) ? halfUnit(expected) : 1e-9;
  return Math.abs(a - b) <= within;
}

// Whether a number is the expected one, but with fewer places than asked for.
const isShort = (given, expected) =>
  placesOf(given) > 0 && placesOf(given) < placesOf(expected) && Math.abs(valueOf(given) - valueOf(expected)) <= halfUnit(given);
const placesOf = (text) => text.split(".")[1]?.length ?? 0;
const halfUnit = (text) => 0.50001 * 10 ** -placesOf(text);

// What is to be told about one field, or "" if it is empty.
function compareField(field) {
  const { name, kind, expected } = field.dataset;
  const text = field.value.trim();
  if (!text) return "";
  const wanted = READ[kind](expected);
  let given = READ[kind](text);
  if (!given) return `${name}: “${text}” cannot be read as ${WANTED[kind]}: compare it with what follows.`;
  const alike = wanted.every((each) => each === wanted[0]) && !(Math.abs(valueOf(wanted[0])) > 0);
  if (alike && kind === "numbers" && given.length === 1) given = wanted.map(() => given[0]); // "0" for a row of zeros
  if (given.length !== wanted.length) return `${name}: ${text} is not right: ${given.length} instead of ${wanted.length} entries.`;
  const ofNumbers = kind === "number" || kind === "numbers";
  const right = given.map((each, i) => (ofNumbers ? sameNumber(each, wanted[i]) : each === wanted[i]));
  const short = given.map((each, i) => ofNumbers && isShort(each, wanted[i]));
  const verdict = right.every(Boolean) ? "right" : right.every((is, i) => is || short[i]) ? "right, but give more decimal places" : "not right";
  return `${name}: ${text} is ${verdict}.`;
}

// What is to be told about an answer: fields, and words that nothing here can judge.
function comparison(fields, words) {
  const told = fields.map(compareField).filter(Boolean);
  if (words.trim() || !told.length) told.push(`Compare your ${told.length ? "words" : "answer"} with what follows.`);
  return told.join(" ");
}
