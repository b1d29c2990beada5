// The body of a commit (CC29): a first part with the list of operations, then the bodies in its order.

const encoder = new TextEncoder();

/** One operation, as the list has it. Members that are `undefined` are left out. */
export interface CommitOperation {
  op: "put" | "delete";
  resource: string;
  key: string;
  body?: string | undefined;
  content_type?: string | undefined;
  if_match?: string | undefined;
  if_none_match?: string | undefined;
}

/** The list of operations as JSON without spaces: `versions`, as digits, sorted by name, and only if there are any. */
export function operationList(operations: readonly CommitOperation[], versions: ReadonlyMap<string, string>): string {
  const members = operations.map(({ op, resource, key, body, content_type, if_match, if_none_match }) => {
    return { op, resource, key, body, content_type, if_match, if_none_match };
  });
  const sorted = [...versions].sort(([one], [other]) => (one < other ? -1 : 1));
  const list = JSON.stringify({ operations: members });
  if (sorted.length === 0) return list;
  // By hand: an object would put names that look like numbers first.
  const named = sorted.map(([name, version]) => `${JSON.stringify(name)}:${version}`);
  return `${list.slice(0, -1)},"versions":{${named.join(",")}}}`;
}

/** The head of a part, with the boundary before it. */
export function partHead(
  boundary: string,
  isFirst: boolean,
  name: string,
  contentType: string,
  digest: string | undefined,
): Uint8Array {
  const before = isFirst ? "" : "\r\n";
  const shown = digest === undefined ? "" : `\r\nRepr-Digest: ${digest}`;
  const lines = `--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\nContent-Type: ${contentType}`;
  return encoder.encode(`${before}${lines}${shown}\r\n\r\n`);
}

/** What follows the last part. */
export function partsTail(boundary: string): Uint8Array {
  return encoder.encode(`\r\n--${boundary}--\r\n`);
}
