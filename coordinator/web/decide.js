// Buttons that decide something: one deliberate press of a person, and no other.

/**
 * How long a button is in view in a window in front, without a press anywhere, before it becomes active. A series of taps that
 * began on another page, such as a game, does nothing.
 */
const SETTLED = 1_000;

/** What makes each button wait anew. @type {((isShownAnew: boolean) => void)[]} */
const waits = [];

let isRepeated = false;
if (typeof document !== "undefined") {
  document.addEventListener("keydown", (event) => (isRepeated = event.repeat), true);
  const wait = (/** @type {boolean} */ isShownAnew) => waits.forEach((begin) => begin(isShownAnew));
  for (const press of ["pointerdown", "pointerup", "keydown"]) document.addEventListener(press, () => wait(false), true);
  document.addEventListener("visibilitychange", () => wait(true));
  for (const shown of ["focus", "pageshow"]) window.addEventListener(shown, () => wait(true));
}

/**
 * Returns whether a press counts: not one of a script, and not the repetition of a key that is held.
 * @param {{isTrusted: boolean, detail: number}} click
 * @param {boolean} isKeyRepeated
 */
export function counts(click, isKeyRepeated) {
  const isByKey = click.detail === 0;
  return click.isTrusted && !(isByKey && isKeyRepeated);
}

/**
 * Makes a button decide. Returns the function that makes it active, after its wait, or inactive. It begins inactive.
 * @param {HTMLButtonElement} button
 * @param {() => void} act
 */
export function decisive(button, act) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let isActive = false;
  button.disabled = true;
  button.addEventListener("click", (event) => {
    if (isActive && counts(event, isRepeated)) act();
  });
  const begin = () => {
    clearTimeout(timer);
    button.disabled = true;
    if (isActive) timer = setTimeout(() => (button.disabled = false), SETTLED);
  };
  waits.push((isShownAnew) => {
    if (isShownAnew || button.disabled) begin();
  });
  return (/** @type {boolean} */ active) => {
    if (active === isActive) return;
    isActive = active;
    begin();
  };
}
