/** Element types as the settings of models and servers write them. */

/** An element type of weights or of the KV cache. */
export type ElementType = "float32" | "float16" | "bfloat16" | "float8_e4m3" | "float8_e5m2" | "int8";

const BYTES: Readonly<Record<ElementType, number>> = {
  float32: 4,
  float16: 2,
  bfloat16: 2,
  float8_e4m3: 1,
  float8_e5m2: 1,
  int8: 1,
};

const SYNONYMS: Readonly<Record<string, ElementType>> = {
  float: "float32",
  fp32: "float32",
  f32: "float32",
  half: "float16",
  fp16: "float16",
  f16: "float16",
  bf16: "bfloat16",
  fp8: "float8_e4m3",
  float8: "float8_e4m3",
  f8e4m3: "float8_e4m3",
  f8_e4m3: "float8_e4m3",
  float8_e4m3fn: "float8_e4m3",
  f8e5m2: "float8_e5m2",
  f8_e5m2: "float8_e5m2",
  i8: "int8",
  s8: "int8",
};

/** Bytes of one element. */
export function elementBytes(dtype: ElementType): number {
  return BYTES[dtype];
}

/** The type of a text such as `torch.bfloat16`, `bf16` or `fp8`, or undefined. @param text in any case */
export function elementTypeNamed(text: string): ElementType | undefined {
  const word = text.trim().toLowerCase().replace(/^torch\./, "");
  return (Object.keys(BYTES) as ElementType[]).find((one) => one === word) ??
    (Object.hasOwn(SYNONYMS, word) ? SYNONYMS[word] : undefined);
}
