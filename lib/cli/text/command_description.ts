/** What a manual and a completion need to know of a command line, as plain data. */

/** An argument of a command. */
export interface ArgumentDescription {
  readonly name: string;
  readonly required: boolean;
  readonly variadic: boolean;
  readonly description: string;
  /** What it can be, where that is a list. */
  readonly choices: readonly string[];
  /** What is completed for it where it is no list. */
  readonly completes: Completes;
}

/** An option of a command. */
export interface OptionDescription {
  /** As written in help, for example `-o, --out <page>`. */
  readonly flags: string;
  readonly short: string | null;
  readonly long: string;
  /** Name of its value, null for a switch. */
  readonly value: string | null;
  readonly description: string;
  readonly choices: readonly string[];
  readonly completes: Completes;
  /** Default for people, or null. */
  readonly standard: string | null;
  /** Long names of options that cannot be given beside it. */
  readonly conflicts: readonly string[];
}

/** What a shell offers for a value: files, folders, programs, or nothing. */
export type Completes = "files" | "folders" | "commands" | "nothing";

/** A command. */
export interface CommandDescription {
  readonly name: string;
  readonly usage: string;
  /** Heading it stands under. */
  readonly group: string;
  /** A few words. */
  readonly summary: string;
  /** A sentence. */
  readonly description: string;
  readonly arguments: readonly ArgumentDescription[];
  readonly options: readonly OptionDescription[];
}

/** The whole program. */
export interface ProgramDescription {
  readonly name: string;
  readonly description: string;
  readonly options: readonly OptionDescription[];
  readonly commands: readonly CommandDescription[];
}
