/** The part of a request's description that issuing it needs, whatever its argument struct is. */
export interface AnyRequest {
  /** The C name without `NEURON_IOCTL_`. */
  readonly name: string;
  /** The full 32-bit number. */
  readonly request: number;
  /** The number as `0x…`. */
  readonly hex: string;
  /** Whether a descriptor opened write-only may issue it. */
  readonly freeAccess: boolean;
  /** The argument struct, to read its fields back for an error or a log. */
  readonly argument: {
    readonly byteLength: number;
    over(view: DataView, base?: number): { $read(): Record<string, unknown> };
  } | null;
}
