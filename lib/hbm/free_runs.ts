/**
 * The free pages of a pool as runs, in a treap over typed arrays: keyed by the
 * first page, each node knowing the longest run below it. Taking from the lowest
 * run that fits, taking a given place and giving back cost O(log runs) and make
 * no garbage.
 */
export class FreeRuns {
  #start = new Int32Array(64);
  #length = new Int32Array(64);
  /** Longest run in the subtree. Node 0 is the empty tree. */
  #longest = new Int32Array(64);
  #left = new Int32Array(64);
  #right = new Int32Array(64);
  #priority = new Int32Array(64);
  /** Nodes from the root to the last one visited. */
  #path = new Int32Array(256);
  #depth = 0;
  #root = 0;
  #used = 1;
  #spare = 0;
  #seed = 0x2545f491;
  #count = 0;
  /** All pages, free or not. */
  readonly pages: number;

  /** A pool of `pages` pages, all free. */
  constructor(pages: number) {
    this.pages = pages;
    if (pages > 0) this.#insert(0, pages);
  }

  /** Number of free runs. */
  get count(): number {
    return this.#count;
  }

  /** Length of the longest free run in pages. */
  get longest(): number {
    return this.#longest[this.#root]!;
  }

  /** Takes `pages` at the front of the lowest run that has so many. Returns the first page, or −1. */
  takeFirst(pages: number): number {
    const left = this.#left, longest = this.#longest, length = this.#length;
    let node = this.#root;
    if (longest[node]! < pages) return -1;
    this.#depth = 0;
    for (;;) {
      this.#push(node);
      if (longest[left[node]!]! >= pages) node = left[node]!;
      else if (length[node]! >= pages) break;
      else node = this.#right[node]!;
    }
    const start = this.#start[node]!;
    if (length[node] === pages) {
      this.#remove(start);
      return start;
    }
    this.#start[node] = start + pages;
    length[node] = length[node]! - pages;
    this.#repair();
    return start;
  }

  /** The free run that contains `page`: fills `run` and returns true, or false when the page is used. */
  runAt(page: number, run: Run): boolean {
    const node = this.#atOrBefore(page);
    if (node === 0 || page >= this.#start[node]! + this.#length[node]!) return false;
    run.start = this.#start[node]!;
    run.length = this.#length[node]!;
    return true;
  }

  /** The lowest free page at or above `page`, or −1. */
  nextFree(page: number): number {
    const node = this.#atOrBefore(page);
    if (node !== 0 && page < this.#start[node]! + this.#length[node]!) return page;
    let found = -1;
    for (let at = this.#root; at !== 0;) {
      if (this.#start[at]! > page) {
        found = this.#start[at]!;
        at = this.#left[at]!;
      } else at = this.#right[at]!;
    }
    return found;
  }

  /** The lowest run that starts at or above `page` and has at least `pages`: fills `run`. */
  nextFitting(page: number, pages: number, run: Run): boolean {
    const node = this.#fitting(this.#root, page, pages);
    if (node === 0) return false;
    run.start = this.#start[node]!;
    run.length = this.#length[node]!;
    return true;
  }

  /** Takes `pages` at `page`; what must hold: they are free. */
  takeAt(page: number, pages: number): void {
    const node = this.#descend(page);
    const start = this.#start[node]!;
    const end = start + this.#length[node]!;
    if (start === page && end === page + pages) return this.#remove(start);
    if (start === page) {
      this.#start[node] = page + pages;
      this.#length[node] = end - page - pages;
      return this.#repair();
    }
    this.#length[node] = page - start;
    this.#repair();
    if (end > page + pages) this.#insert(page + pages, end - page - pages);
  }

  /** Gives `pages` at `page` back, merging with its neighbours; what must hold: they are used. */
  give(page: number, pages: number): void {
    const before = this.#atOrBefore(page);
    const merges = before !== 0 && this.#endOf(before) === page;
    const after = this.#descendTo(page + pages);
    if (after !== 0 && !merges) {
      this.#start[after] = page;
      this.#length[after] = this.#length[after]! + pages;
      return this.#repair();
    }
    if (!merges) return this.#insert(page, pages);
    let added = pages;
    if (after !== 0) {
      added += this.#length[after]!;
      this.#remove(page + pages);
    }
    this.#descendTo(this.#start[before]!);
    this.#length[before] = this.#length[before]! + added;
    this.#repair();
  }

  /** All runs in rising order, as pairs of first page and length. */
  *runs(): Generator<readonly [number, number]> {
    const run: Run = { start: 0, length: 0 };
    for (let page = 0; this.nextFitting(page, 1, run); page = run.start + run.length) yield [run.start, run.length];
  }

  /** The first page after a run. */
  #endOf(node: number): number {
    return this.#start[node]! + this.#length[node]!;
  }

  #push(node: number): void {
    if (this.#depth === this.#path.length) this.#path = grown(this.#path);
    this.#path[this.#depth++] = node;
  }

  /** Recomputes `longest` from the last visited node up to the root. */
  #repair(): void {
    const length = this.#length, longest = this.#longest, left = this.#left, right = this.#right;
    for (let i = this.#depth - 1; i >= 0; i--) {
      const node = this.#path[i]!;
      let most = length[node]!;
      if (longest[left[node]!]! > most) most = longest[left[node]!]!;
      if (longest[right[node]!]! > most) most = longest[right[node]!]!;
      longest[node] = most;
    }
  }

  #update(node: number): void {
    const length = this.#length[node]!;
    const left = this.#longest[this.#left[node]!]!;
    const right = this.#longest[this.#right[node]!]!;
    this.#longest[node] = length > left ? (length > right ? length : right) : left > right ? left : right;
  }

  #atOrBefore(page: number): number {
    const start = this.#start;
    let found = 0;
    for (let node = this.#root; node !== 0;) {
      if (start[node]! <= page) {
        found = node;
        node = this.#right[node]!;
      } else node = this.#left[node]!;
    }
    return found;
  }

  /** Descends to the run that contains `page`, leaving its path. */
  #descend(page: number): number {
    this.#depth = 0;
    for (let node = this.#root; node !== 0;) {
      this.#push(node);
      if (page < this.#start[node]!) node = this.#left[node]!;
      else if (page >= this.#start[node]! + this.#length[node]!) node = this.#right[node]!;
      else return node;
    }
    return 0;
  }

  /** Descends to the run that starts at `page`, leaving its path; 0 when there is none. */
  #descendTo(page: number): number {
    this.#depth = 0;
    for (let node = this.#root; node !== 0;) {
      this.#push(node);
      if (page === this.#start[node]!) return node;
      node = page < this.#start[node]! ? this.#left[node]! : this.#right[node]!;
    }
    return 0;
  }

  #fitting(node: number, page: number, pages: number): number {
    if (node === 0 || this.#longest[node]! < pages) return 0;
    if (this.#start[node]! < page) return this.#fitting(this.#right[node]!, page, pages);
    const lower = this.#fitting(this.#left[node]!, page, pages);
    if (lower !== 0) return lower;
    return this.#length[node]! >= pages ? node : this.#fitting(this.#right[node]!, page, pages);
  }

  #newNode(start: number, length: number): number {
    let node = this.#spare;
    if (node !== 0) this.#spare = this.#left[node]!;
    else {
      if (this.#used === this.#start.length) this.#grow();
      node = this.#used++;
    }
    this.#seed ^= this.#seed << 13;
    this.#seed ^= this.#seed >>> 17;
    this.#seed ^= this.#seed << 5;
    this.#start[node] = start;
    this.#length[node] = length;
    this.#longest[node] = length;
    this.#left[node] = 0;
    this.#right[node] = 0;
    this.#priority[node] = this.#seed;
    this.#count++;
    return node;
  }

  #insert(start: number, length: number): void {
    const node = this.#newNode(start, length);
    const priority = this.#priority[node]!;
    this.#depth = 0;
    let at = this.#root;
    while (at !== 0 && this.#priority[at]! >= priority) {
      this.#push(at);
      at = start < this.#start[at]! ? this.#left[at]! : this.#right[at]!;
    }
    this.#split(at, start, node);
    this.#replaceChild(start, node);
    this.#repair();
  }

  /** Splits the tree `at` around `start` into the two children of `node`. */
  #split(at: number, start: number, node: number): void {
    if (at === 0) return;
    if (this.#start[at]! < start) {
      this.#split(this.#right[at]!, start, node);
      this.#right[at] = this.#left[node]!;
      this.#left[node] = at;
    } else {
      this.#split(this.#left[at]!, start, node);
      this.#left[at] = this.#right[node]!;
      this.#right[node] = at;
    }
    this.#update(at);
    this.#update(node);
  }

  #remove(start: number): void {
    const node = this.#descendTo(start);
    this.#depth--;
    this.#replaceChild(start, this.#merge(this.#left[node]!, this.#right[node]!));
    this.#repair();
    this.#left[node] = this.#spare;
    this.#spare = node;
    this.#count--;
  }

  #merge(left: number, right: number): number {
    if (left === 0) return right;
    if (right === 0) return left;
    if (this.#priority[left]! >= this.#priority[right]!) {
      this.#right[left] = this.#merge(this.#right[left]!, right);
      this.#update(left);
      return left;
    }
    this.#left[right] = this.#merge(left, this.#left[right]!);
    this.#update(right);
    return right;
  }

  /** Makes `node` the child of the last node of the path on the side of `start`. */
  #replaceChild(start: number, node: number): void {
    if (this.#depth === 0) {
      this.#root = node;
      return;
    }
    const parent = this.#path[this.#depth - 1]!;
    if (start < this.#start[parent]!) this.#left[parent] = node;
    else this.#right[parent] = node;
  }

  #grow(): void {
    this.#start = grown(this.#start);
    this.#length = grown(this.#length);
    this.#longest = grown(this.#longest);
    this.#left = grown(this.#left);
    this.#right = grown(this.#right);
    this.#priority = grown(this.#priority);
  }
}

/** A run of free pages, filled in by {@linkcode FreeRuns}. */
export interface Run {
  /** First page. */
  start: number;
  /** Number of pages. */
  length: number;
}

function grown(array: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(array.length * 2);
  larger.set(array);
  return larger;
}
