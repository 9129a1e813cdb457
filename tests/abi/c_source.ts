/** Writes a C program from the layout tables: the structs as a C compiler lays them out, with assertions, and a printer of their fields. */
import { cFieldName, type Field } from "../../ffi/layout.ts";
import type { AbiField, AbiTable } from "../../scripts/generate_abi.ts";
import type { AnyStruct } from "./support.ts";

/** What a field is in C where the table only says "bytes" or "an aligned counter". */
const DECLARED: Readonly<Record<string, string>> = {
  "dmem_t.ref_count": "_Alignas(64) uint64_t ref_count",
  "nrt_tensor_t.ref_count": "_Alignas(64) uint64_t ref_count",
  "nrt_tensor_t.output_completion_count": "_Alignas(64) uint64_t output_completion_count",
  "nrt_tensor_storage_t.ref_count": "_Alignas(64) uint64_t ref_count",
  "nrt_tensor_storage_t.pending_exec_count_read": "_Alignas(64) uint64_t pending_exec_count_read",
  "nrt_tensor_storage_t.pending_exec_count_write": "_Alignas(64) uint64_t pending_exec_count_write",
  "dmem_allocator_t.dummy_head": "struct dmem_t dummy_head",
  "dmem_allocator_t.dummy_tail": "struct dmem_t dummy_tail",
  "ndl_device_t.cpy_bufs": "struct ndl_copy_buf_t cpy_bufs[8]",
  "mem_ref_t.node": "struct ht_node_t node",
  "mem_ref_buffer.debug_md": "struct debug_tensor_md debug_md",
  "mem_ref_tmp_buf.debug_md": "struct debug_tensor_md debug_md",
  "mem_ref_virtual_tmp_buf.debug_md": "struct debug_tensor_md debug_md",
  "mla_resources.mem_ref_info": "struct mem_ref_info mem_ref_info",
  "kbin_t.fp8_conv_cfg": "struct kbin_fp8_conv_cfg fp8_conv_cfg",
  "kbin_act_function_set.profile": "uint32_t profile[25][19]",
  "tdrv_ctx_t.mla": "struct mla_t mla[32]",
  "tdrv_ctx_t.ptpbs": "struct tdrv_ptpb_t ptpbs[256]",
  "mla_t._tpbs": "struct tpb_t _tpbs[8]",
  "mla_t.dmem_logger": "struct dma_mem_log_t dmem_logger",
  "tpb_t.sunda": "struct tpb_sunda_t sunda",
  "tpb_t.scratchpad": "struct tdrv_scratchpad_t scratchpad",
  "model_t.ht_node": "struct ht_node_t ht_node",
  "struct neuron_ioctl_get_async_h2t_dma_compl_queues.compl_queue_info": "struct anonymous_compl_queue_info_element compl_queue_info[16]",
  "virtual_core_t.tpbs": "struct physical_core_t tpbs[2]",
  "tdrv_scratchpad_t.pages": "struct tdrv_scratchpad_page_t pages[1024]",
};

/** Arrays without a length that follow a struct; they widen its tail like any member. */
const FLEXIBLE: Readonly<Record<string, string>> = {
  "kbin_dma": "void *instances[]",
  "kbin_ring_instance": "struct kbin_dma_desc desc[]",
  "struct neuron_ioctl_get_apps_info": "struct neuron_app_info app_data[]",
  "struct neuron_ioctl_nc_map": "struct neuron_ioctl_nc_map_entry mappings[]",
};

const C_TYPES: Readonly<Record<Exclude<Field["kind"], "bytes" | "chars">, string>> = {
  u8: "uint8_t", i8: "int8_t", u16: "uint16_t", u32: "uint32_t", i32: "int32_t", i64: "int64_t", u64: "uint64_t", id64: "uint64_t", ptr: "void *",
};

/** What {@linkcode cSource} made. */
export interface CSource {
  /** The program. */
  readonly text: string;
  /** Assertions in it. */
  readonly assertions: number;
  /** Structs that needed gaps to be filled by hand, by C name. */
  readonly padded: readonly string[];
  /** Structs in the order in which the program reads them, each `byteLength` bytes. */
  readonly order: readonly AnyStruct[];
}

/** The C identifier of a struct: its name without `struct` and other marks. */
function tag(cName: string): string {
  return cName.replace(/^struct /, "").replace(/\W+/g, "_").replace(/^_|_$/g, "");
}

/** The C identifier of a field. */
function memberName(key: string, field: Field): string {
  const name = cFieldName(key, field);
  return name === "union" ? "union_" : name;
}

/**
 * The program: declares every struct with plain members, asserts its size and
 * every offset and size, reads the structs of at most `printed` bytes from
 * standard input and prints their fields, one a line.
 */
export function cSource(structs: readonly AnyStruct[], table: AbiTable, printed: number): CSource {
  const declared = declarationsOf(structs, table);
  const bodies = new Map(structs.map((struct) => [tag(struct.cName), { struct, ...body(struct, declared) }]));
  const sorted: string[] = [];
  const place = (name: string): void => {
    if (sorted.includes(name)) return;
    for (const [, needed] of bodies.get(name)!.text.matchAll(/\bstruct (\w+) \w+/g)) place(needed!);
    sorted.push(name);
  };
  for (const name of bodies.keys()) place(name);
  const order = structs.filter((one) => one.byteLength <= printed);
  const declarations = sorted.map((name) => `struct ${name} {\n${bodies.get(name)!.text}};`);
  const assertions = structs.flatMap(assertionsOf);
  const text = `#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <inttypes.h>\n\n${declarations.join("\n")}\n\n${assertions.join("\n")}\n
static void bytes(const unsigned char *at, size_t n) { uint64_t h = 1469598103934665603u; for (size_t i = 0; i < n; i++) h = (h ^ at[i]) * 1099511628211u; printf("%" PRIu64 "\\n", h); }
int main(void) {
${order.map(printerOf).join("\n")}
  return 0;
}
`;
  return { text, assertions: assertions.length, padded: [...bodies.values()].filter((one) => one.pads > 0).map((one) => one.struct.cName).sort(), order };
}

/** What the program prints for a field of raw bytes. */
export function fnv(bytes: Uint8Array): bigint {
  let hash = 1469598103934665603n;
  for (const byte of bytes) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 1099511628211n);
  return hash;
}

interface Body {
  readonly text: string;
  readonly pads: number;
}

interface Declaration {
  readonly text: string;
  readonly align: number;
}

/** How every field of every struct is declared, by `struct.key`, and the alignment of every struct, by its tag. */
interface Declarations {
  readonly fields: ReadonlyMap<string, Declaration>;
  readonly aligns: ReadonlyMap<string, number>;
}

function declarationsOf(structs: readonly AnyStruct[], table: AbiTable): Declarations {
  const headers = new Map(Object.entries({ ...table.structs, ...table.since_2_27.structs }).map(([cName, one]) => [cName, one.fields]));
  const byTag = new Map(structs.map((struct) => [tag(struct.cName), struct]));
  const fields = new Map<string, Declaration>();
  const aligns = new Map<string, number>();
  const alignOf = (name: string): number => {
    const struct = byTag.get(name)!;
    if (!aligns.has(name)) {
      for (const [key, field] of Object.entries(struct.fields)) {
        const cName = cFieldName(key, field);
        const text = declaration(struct.cName, key, field, headers.get(struct.cName)?.find((one) => one.name === cName));
        const embedded = /^struct (\w+) /.exec(text)?.[1];
        const align = text.startsWith("_Alignas(64)") ? 64 : embedded === undefined ? widthOf(text, field) : alignOf(embedded);
        fields.set(`${struct.cName}.${key}`, { text, align });
      }
      const tail = FLEXIBLE[struct.cName];
      const tailAlign = tail === undefined ? 1 : tail.startsWith("void") ? 8 : alignOf(/^struct (\w+) /.exec(tail)![1]!);
      aligns.set(name, Math.max(tailAlign, ...Object.keys(struct.fields).map((key) => fields.get(`${struct.cName}.${key}`)!.align)));
    }
    return aligns.get(name)!;
  };
  for (const name of byTag.keys()) alignOf(name);
  return { fields, aligns };
}

/** Width of one element of a declared field that is no struct. */
function widthOf(text: string, field: Field): number {
  const bits = /^u?int(\d+)_t/.exec(text)?.[1];
  return bits !== undefined ? Number(bits) / 8 : text.startsWith("char") ? 1 : field.size / (field.count ?? 1);
}

function declaration(cName: string, key: string, field: Field, header: AbiField | undefined): string {
  const name = memberName(key, field);
  const known = DECLARED[`${cName}.${name}`];
  if (known !== undefined) return known;
  const count = field.count === undefined ? "" : `[${field.count}]`;
  if (field.kind !== "bytes" && field.kind !== "chars") return `${C_TYPES[field.kind]} ${name}${count}`;
  const embedded = /^struct (\w+)/.exec(header?.ctype ?? "")?.[1];
  if (embedded !== undefined) return `struct ${embedded} ${name}${typeof header?.count === "number" ? `[${header.count}]` : ""}`;
  // A lock, a standard container or a union of pointers: eight-byte words. The driver's bytes are bytes.
  if (header === undefined && field.kind === "bytes" && field.size % 8 === 0 && field.offset % 8 === 0) return `uint64_t ${name}[${field.size / 8}]`;
  return `${field.kind === "chars" ? "char" : "uint8_t"} ${name}[${field.size}]`;
}

function body(struct: AnyStruct, declared: Declarations): Body {
  let text = "";
  let pads = 0;
  let end = 0;
  const padTo = (offset: number, align: number): void => {
    if (Math.ceil(end / align) * align >= offset) return;
    text += `  uint8_t gap_${pads++}[${offset - end}];\n`;
  };
  for (const [key, field] of Object.entries(struct.fields).sort(([, a], [, b]) => a.offset - b.offset)) {
    const { text: line, align } = declared.fields.get(`${struct.cName}.${key}`)!;
    padTo(field.offset, align);
    text += `  ${line};\n`;
    end = field.offset + field.size;
  }
  padTo(struct.byteLength, declared.aligns.get(tag(struct.cName))!);
  const tail = FLEXIBLE[struct.cName];
  return { text: tail === undefined ? text : `${text}  ${tail};\n`, pads };
}

function assertionsOf(struct: AnyStruct): string[] {
  const name = tag(struct.cName);
  return [
    `_Static_assert(sizeof(struct ${name}) == ${struct.byteLength}, "size of ${name}");`,
    ...Object.entries(struct.fields).flatMap(([key, field]) => {
      const member = memberName(key, field);
      return [
        `_Static_assert(offsetof(struct ${name}, ${member}) == ${field.offset}, "offset of ${name}.${member}");`,
        `_Static_assert(sizeof(((struct ${name} *)0)->${member}) == ${field.size}, "size of ${name}.${member}");`,
      ];
    }),
  ];
}

function printerOf(struct: AnyStruct): string {
  const prints = Object.entries(struct.fields).map(([key, field]) => {
    const member = memberName(key, field);
    const last = `[${(field.count ?? 1) - 1}]`;
    const place = `s.${member}${field.count === undefined ? "" : last}`;
    switch (field.kind) {
      case "bytes": case "chars": return `bytes((const unsigned char *)&s.${member}, sizeof s.${member});`;
      case "ptr": return `printf("%" PRIuPTR "\\n", (uintptr_t)${place});`;
      case "i8": case "i32": case "i64": return `printf("%" PRId64 "\\n", (int64_t)${place});`;
      default: return `printf("%" PRIu64 "\\n", (uint64_t)${place});`;
    }
  });
  return `  { static struct ${tag(struct.cName)} s; if (fread(&s, sizeof s, 1, stdin) != 1) return 1; ${prints.join(" ")} }`;
}
