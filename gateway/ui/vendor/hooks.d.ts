// What the page uses of Preact's hooks, for the checker of types.
type Update<T> = (value: T | ((before: T) => T)) => void;
export declare function useState<T>(initial: T | (() => T)): [T, Update<T>];
export declare function useRef<T>(initial: T): { current: T };
export declare function useEffect(effect: () => void | (() => void), of?: unknown[]): void;
export declare function useCallback<T extends (...given: any[]) => any>(call: T, of: unknown[]): T;
