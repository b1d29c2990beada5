// What the page uses of Preact, for the checker of types.
export declare function h(type: any, props: any, ...children: any[]): any;
export declare function render(what: any, into: Element): void;
