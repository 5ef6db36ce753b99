// Buttons that decide something: one deliberate press of a person, and no other.

/** How long a button is shown before it becomes active, so that a tap meant for the page before it does nothing. */
const SETTLED = 400;

let isRepeated = false;
if (typeof document !== "undefined") {
  document.addEventListener("keydown", (event) => (isRepeated = event.repeat), true);
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
 * Makes a button decide. Returns the function that makes it active, after a moment, or inactive. It begins inactive.
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
  return (/** @type {boolean} */ active) => {
    if (active === isActive) return;
    isActive = active;
    clearTimeout(timer);
    if (active) timer = setTimeout(() => (button.disabled = false), SETTLED);
    else button.disabled = true;
  };
}
