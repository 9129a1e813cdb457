/** Who owns what, as a tree whose leaves add up to the bytes in use. */
import type { CategoryKey } from "./categories.ts";
import { overlapGroups } from "./lanes.ts";
import type { MemoryPicture, PictureRegion } from "./model.ts";
import { regionsOf } from "./totals.ts";

/** What a leaf stands for. */
export type LeafKind = "variable" | "aliases" | "rest" | "region";

/** A node: an owner, a usage, or a stretch of memory. */
export interface OwnerNode {
  /** Its name. */
  readonly name: string;
  /** Bytes of a leaf; 0 for an inner node, see {@linkcode treeBytes}. */
  readonly bytes: number;
  /** What a leaf stands for: one variable, variables that share bytes, what is left of an allocation, an allocation without variables. Null for an inner node. */
  readonly leaf: LeafKind | null;
  /** Category, of leaves. */
  readonly category: CategoryKey | null;
  /** Device index and HBM number of a leaf, and its first byte. */
  readonly at: { readonly device: number; readonly hbm: number; readonly start: number } | null;
  /** Children, by name for inner nodes and by address for leaves. */
  readonly children: readonly OwnerNode[];
}

/** Bytes of a node: its own and those of everything below. */
export function treeBytes(node: OwnerNode): number {
  return node.children.reduce((sum, child) => sum + treeBytes(child), node.bytes);
}

/**
 * The bytes in use by owner, then usage, then variable. Variables that share
 * bytes are one leaf of the bytes they cover together; what no variable of an
 * allocation covers is a leaf of its own. So every byte is in exactly one leaf.
 */
export function ownerTree(picture: MemoryPicture): OwnerNode {
  const owners = new Map<string, Map<string, OwnerNode[]>>();
  for (const device of picture.devices) {
    for (const hbm of device.hbms) {
      for (const region of regionsOf(hbm)) {
        const [owner, usage] = region.owner;
        if (owner === undefined || usage === undefined) continue;
        const usages = owners.get(owner) ?? new Map<string, OwnerNode[]>();
        owners.set(owner, usages);
        const leaves = usages.get(usage) ?? [];
        usages.set(usage, leaves);
        leaves.push(...leavesOf(region, device.index, hbm.index));
      }
    }
  }
  return inner("in use", [...owners].map(([owner, usages]) => inner(owner, [...usages].map(([usage, leaves]) => inner(usage, leaves)))));
}

function inner(name: string, children: readonly OwnerNode[]): OwnerNode {
  return { name, bytes: 0, leaf: null, category: null, at: null, children };
}

function leavesOf(region: PictureRegion, device: number, hbm: number): OwnerNode[] {
  const leaf = (kind: LeafKind, name: string, start: number, bytes: number): OwnerNode =>
    ({ name, bytes, leaf: kind, category: region.category, at: { device, hbm, start }, children: [] });
  if (region.variables.length === 0) return [leaf("region", region.name, region.start, region.size)];
  const leaves = overlapGroups(region.variables).map((group) => {
    const { start } = group[0]!;
    if (group.length === 1) return leaf("variable", group[0]!.name, start, group[0]!.size);
    return leaf("aliases", groupName(group), start, endOf(group) - start);
  });
  const rest = region.size - region.coveredBytes;
  if (rest > 0) leaves.push(leaf("rest", `${region.name}: no variable`, region.start, rest));
  return leaves;
}

/** A name for variables that share memory. */
function groupName(group: readonly { readonly name: string }[]): string {
  const names = [...new Set(group.map(({ name }) => name))];
  if (names.length === 1) return `${names[0]} ×${group.length}`;
  return names.length === 2 ? `${names[0]} = ${names[1]}` : `${group.length} variables in turns`;
}

/** The first address after a group. */
function endOf(group: readonly { readonly start: number; readonly size: number }[]): number {
  return group.reduce((end, { start, size }) => Math.max(end, start + size), 0);
}
