// Numbers below 100,000 in words, as the demo's model reads them and as its German should be.
"use strict";

const ENGLISH = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(" ");
const ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ");
const GERMAN = "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn".split(" ");
const GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split(" ");

// 54321: fifty four thousand three hundred and twenty one
function english(n) {
  if (n < 20) return [ENGLISH[n]];
  if (n < 100) return [ENGLISH_TENS[Math.floor(n / 10) - 2], ...(n % 10 ? [ENGLISH[n % 10]] : [])];
  if (n < 1000) return [ENGLISH[Math.floor(n / 100)], "hundred", ...(n % 100 ? ["and", ...english(n % 100)] : [])];
  const rest = n % 1000;
  return [...english(Math.floor(n / 1000)), "thousand", ...(rest ? [...(rest < 100 ? ["and"] : []), ...english(rest)] : [])];
}

// 54321: vierundfünfzigtausenddreihunderteinundzwanzig. before: whether more of the word follows, as in "eintausend".
function german(n, before = false) {
  if (n === 1 && before) return "ein";
  if (n < 20) return GERMAN[n];
  if (n < 100) return (n % 10 ? `${german(n % 10, true)}und` : "") + GERMAN_TENS[Math.floor(n / 10) - 2];
  if (n < 1000) return `${german(Math.floor(n / 100), true)}hundert${n % 100 ? german(n % 100) : ""}`;
  return `${german(Math.floor(n / 1000), true)}tausend${n % 1000 ? german(n % 1000) : ""}`;
}
