// Where the library runs, as far as that changes what it can send.

/**
 * Whether this is Node or its like. Browsers cannot stream requests to a gateway, which speaks HTTP/1.1, set their own
 * `User-Agent`, and have few connections for each host.
 */
export const isServer = typeof process === "object" && process?.versions?.node !== undefined;
