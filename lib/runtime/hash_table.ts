import { ArgumentError } from "../../ffi/error.ts";

/** What a table is keyed by: a number (model handle, variable id) or a name. */
export type HashKey = number | string;

/**
 * The link an object embeds to be in a table (`ht_node_t`): no memory is
 * allocated for an insertion, and the object is found back from its node.
 */
export interface HashNode<Owner> {
  /** The object the node is part of. */
  readonly owner: Owner;
  /** The key. */
  readonly key: HashKey;
  /** Next node of the same bucket. */
  next: HashNode<Owner> | null;
  /** Bucket the node is in, −1 when it is in no table. */
  bucket: number;
}

/** A node for `owner`, in no table yet. */
export function hashNode<Owner>(owner: Owner, key: HashKey): HashNode<Owner> {
  return { owner, key, next: null, bucket: -1 };
}

/**
 * The runtime's hash table (`ht_t`): a power-of-two number of buckets, chained
 * nodes that live in their owners, and a callback for what is dropped.
 *
 * `has` and `get` say plainly whether a key is there; the original's find
 * returns 0 for found.
 */
export class HashTable<Owner> {
  readonly #buckets: (HashNode<Owner> | null)[];
  readonly #free: (owner: Owner) => void;
  #count = 0;

  /**
   * @param size number of buckets, a power of two
   * @param free called once for each owner that `clear` drops
   * @throws {ArgumentError} when `size` is no power of two
   */
  constructor(size: number, free: (owner: Owner) => void = () => {}) {
    if (!Number.isInteger(Math.log2(size)) || size < 1) {
      throw new ArgumentError(`Cannot make a table of ${size} buckets: not a power of two`);
    }
    this.#buckets = Array.from({ length: size }, () => null);
    this.#free = free;
  }

  /** Number of buckets. */
  get size(): number {
    return this.#buckets.length;
  }

  /** `size − 1`: what a hash is masked with. */
  get sizeMask(): number {
    return this.#buckets.length - 1;
  }

  /** Nodes in the table. */
  get count(): number {
    return this.#count;
  }

  /** Whether `key` is in the table. */
  has(key: HashKey): boolean {
    return this.#find(key) !== null;
  }

  /** The owner of `key`'s node, or undefined. */
  get(key: HashKey): Owner | undefined {
    return this.#find(key)?.owner;
  }

  /** Links a node. Returns false, and changes nothing, when its key is there already. */
  insert(node: HashNode<Owner>): boolean {
    if (this.has(node.key)) return false;
    node.bucket = this.#bucketOf(node.key);
    node.next = this.#buckets[node.bucket] ?? null;
    this.#buckets[node.bucket] = node;
    this.#count += 1;
    return true;
  }

  /** Unlinks `key` and returns its owner, or undefined when it is not there. The callback is not called. */
  remove(key: HashKey): Owner | undefined {
    const node = this.#find(key);
    if (node === null) return undefined;
    const first = this.#buckets[node.bucket]!;
    if (first === node) this.#buckets[node.bucket] = node.next;
    else {
      let before = first;
      while (before.next !== node) before = before.next!;
      before.next = node.next;
    }
    node.next = null;
    node.bucket = -1;
    this.#count -= 1;
    return node.owner;
  }

  /** Unlinks every node and hands each owner to the callback once. */
  clear(): void {
    // A copy first: unlinking changes the chains.
    const nodes = Array.from(this.#nodes());
    for (const node of nodes) {
      this.remove(node.key);
      this.#free(node.owner);
    }
  }

  /** The owners, bucket by bucket. */
  *[Symbol.iterator](): IterableIterator<Owner> {
    for (const node of this.#nodes()) yield node.owner;
  }

  *#nodes(): IterableIterator<HashNode<Owner>> {
    for (const first of this.#buckets) for (let node = first; node !== null; node = node.next) yield node;
  }

  #find(key: HashKey): HashNode<Owner> | null {
    let node = this.#buckets[this.#bucketOf(key)] ?? null;
    while (node !== null && node.key !== key) node = node.next;
    return node;
  }

  #bucketOf(key: HashKey): number {
    if (typeof key === "number") return key % this.#buckets.length;
    let hash = 5381;
    for (let i = 0; i < key.length; i += 1) hash = (Math.imul(hash, 33) + key.charCodeAt(i)) >>> 0;
    return hash % this.#buckets.length;
  }
}
