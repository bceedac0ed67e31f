// Elements made from data: text is always text. No other file builds elements in another way.

// element("td", {class: "number", title: "..."}, "text", child, ...): attributes by name, functions are listeners.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(key, value);
    else if (key === "style") Object.assign(made.style, value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map(asNode));
  return made;
}

const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

export function replace(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child !== null && child !== undefined).map(asNode));
}

export function button(label, action, attributes = {}) {
  return element("button", { type: "button", click: action, ...attributes }, label);
}

export function labelled(text, control, attributes = {}) {
  return element("label", { class: "field", ...attributes }, element("span", {}, text), control);
}

export function select(options, chosen, change, attributes = {}) {
  const made = element("select", { change: () => change(made.value), ...attributes });
  for (const [value, text] of options) made.append(element("option", { value }, text));
  made.value = chosen;
  return made;
}

let announcer = null;

// Say something to whoever listens to the page rather than sees it.
export function announce(text) {
  if (!announcer) {
    announcer = element("div", { class: "unseen", role: "status", "aria-live": "polite" });
    document.body.append(announcer);
  }
  announcer.textContent = text;
}

let toasts = null;

// A line in the corner: what was done, or why not.
export function toast(text, kind = "done") {
  if (!toasts) {
    toasts = element("div", { class: "toasts", role: "status", "aria-live": "polite" });
    document.body.append(toasts);
  }
  const line = element("div", { class: `toast ${kind}` }, text);
  const close = button("×", () => line.remove(), { "aria-label": "Close this message" });
  line.append(close);
  toasts.append(line);
  if (kind !== "wrong") setTimeout(() => line.remove(), 6000);
}

// Run an action and say what went wrong with it, if something did.
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    toast(error.message, "wrong");
    return undefined;
  }
}
