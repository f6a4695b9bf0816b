// What this browser remembers. In: a key, a text. Out: the text. A browser that blocks storage forgets, and nothing breaks.

function storeOf(storage) {
  const tried = (use) => {
    try {
      return use(storage());
    } catch {
      return null;
    }
  };
  return {
    get: (key) => tried((kept) => kept.getItem(key)),
    set: (key, text) => tried((kept) => kept.setItem(key, text)),
    drop: (key) => tried((kept) => kept.removeItem(key)),
  };
}

export const browser = storeOf(() => localStorage);
export const tab = storeOf(() => sessionStorage);
