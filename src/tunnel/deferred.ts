/** A promise that is settled from outside; `settle` counts once. */
export interface Deferred<T> {
  readonly promise: Promise<T>;
  settle(value: T): void;
}

export function deferred<T>(): Deferred<T> {
  let settle: (value: T) => void = () => undefined;
  const promise = new Promise<T>((resolve) => {
    settle = resolve;
  });
  return { promise, settle };
}
