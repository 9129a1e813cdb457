/** Completion scripts for shells, made from a description of the command line. */
import { INSTANCES } from "../abi/architecture.ts";
import type { Given, SHELLS } from "./commands.ts";
import { type ArgumentDescription, type CommandDescription, type Completes, describeProgram, type OptionDescription, type ProgramDescription } from "./describe.ts";
import type { Terminal } from "./terminal.ts";

/** A shell. */
export type Shell = (typeof SHELLS)[number];

/** `completion SHELL`: a script that completes commands, options and their values. */
export function completion(terminal: Terminal, { shell }: Given<"completion">): void {
  terminal.print(completionScript(describeProgram({ "--instance": INSTANCES.map(({ name }) => name) }), shell));
}

/** The script that a shell sources. */
export function completionScript(program: ProgramDescription, shell: Shell): string {
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](program);
}

function bashScript(program: ProgramDescription): string {
  const { name, commands } = program;
  const own = functionName(name);
  const names = commands.map((command) => command.name);
  return `# bash completion for ${name}: source <(${name} completion bash)
${own}() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]:-} command= past= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ -n $command ]]; then
      [[ \${COMP_WORDS[i]} == -- ]] && past=1
    else
      case \${COMP_WORDS[i]} in
        ${names.join("|")}) command=\${COMP_WORDS[i]} ;;
        -*) ;;
        *) ${own}_nothing; return ;;
      esac
    fi
  done
  # --option=value comes as three words.
  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=\${COMP_WORDS[COMP_CWORD-2]:-}; fi
  [[ -n $past ]] && prev=
  if [[ -z $command ]]; then
    ${own}_words ${quoted([...names, ...longs(program.options)])}
    return
  fi
  case $command:$prev in
${commands.flatMap(bashValues).join("\n")}
  esac
  if [[ $cur == -* && -z $past ]]; then
    case $command in
${commands.map((command) => `      ${command.name}) ${own}_words ${quoted(longs(command.options))} ;;`).join("\n")}
    esac
    return
  fi
  case $command in
${commands.map((command) => `    ${command.name}) ${bashOffer(own, offered(command))} ;;`).join("\n")}
  esac
}
${own}_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); ${own}_nothing; }
${own}_folders() { mapfile -t COMPREPLY < <(compgen -d -- "$cur"); compopt -o filenames 2>/dev/null; ${own}_nothing; }
${own}_commands() { mapfile -t COMPREPLY < <(compgen -c -- "$cur"); }
${own}_nothing() { compopt +o default 2>/dev/null; return 0; }
complete -o default -F ${own} ${name}`.replaceAll("%OWN%", own);
}

/** The cases for values of a command's options; files are left to the shell. */
function bashValues({ name, options }: CommandDescription): string[] {
  return options.filter(({ value }) => value !== null).map(({ long, short, choices, completes }) => {
    const patterns = [long, ...(short === null ? [] : [short])].map((flag) => `${name}:${flag}`).join("|");
    return `    ${patterns}) ${bashOffer("%OWN%", { choices, completes })}; return ;;`;
  });
}

/** What is offered for a command's arguments; where they differ, files, which include folders. */
function offered({ arguments: list }: CommandDescription): Pick<ArgumentDescription, "choices" | "completes"> | undefined {
  const [first] = list;
  return list.every(({ completes }) => completes === first?.completes) ? first : { choices: [], completes: "files" };
}

function bashOffer(own: string, what: Pick<ArgumentDescription, "choices" | "completes"> | undefined): string {
  if (what === undefined) return `${own}_nothing`;
  if (what.choices.length > 0) return `${own}_words ${quoted(what.choices)}`;
  return { files: ":", folders: `${own}_folders`, commands: `${own}_commands`, nothing: `${own}_nothing` }[what.completes];
}

function zshScript({ name, options, commands }: ProgramDescription): string {
  const own = functionName(name);
  return `#compdef ${name}
# zsh completion for ${name}: source <(${name} completion zsh)
${own}() {
  local curcontext=$curcontext state line
  _arguments -C ${options.map(zshOption).join(" ")} '1: :->command' '*:: :->rest'
  case $state in
    command)
      local -a commands=(
${commands.map((command) => `        ${single(`${command.name}:${command.summary}`)}`).join("\n")}
      )
      _describe command commands ;;
    rest)
      case $line[1] in
${commands.map((command) => `        ${command.name}) _arguments ${[...command.options.map(zshOption), ...zshArguments(command.arguments)].join(" ")} ;;`).join("\n")}
      esac ;;
  esac
}
if [[ \${funcstack[1]} == ${own} ]]; then ${own} "$@"; else compdef ${own} ${name}; fi`;
}

function zshOption({ long, short, value, description, choices, completes }: OptionDescription): string {
  const text = zshText(sentence(description));
  const tail = value === null ? "" : `:${zshText(value)}:${zshAction(choices, completes)}`;
  const equals = value === null ? "" : "=";
  const one = single(`${long}${equals}[${text}]${tail}`);
  return short === null ? one : `${single(`${short}[${text}]${tail}`)} ${one}`;
}

function zshArguments(list: readonly ArgumentDescription[]): string[] {
  return list.map(({ name, variadic, choices, completes }, index) => {
    if (completes === "commands") return single(`*::${name}:_normal`);
    return single(`${variadic ? "*" : index + 1}:${name}:${zshAction(choices, completes)}`);
  });
}

function zshAction(choices: readonly string[], completes: Completes): string {
  if (choices.length > 0) return `(${choices.join(" ")})`;
  return { files: "_files", folders: "_files -/", commands: "_command_names", nothing: " " }[completes];
}

function zshText(text: string): string {
  return text.replace(/[[\]:]/g, "\\$&");
}

function fishScript({ name, options, commands }: ProgramDescription): string {
  const lines = [`# fish completion for ${name}: ${name} completion fish | source`, `complete -c ${name} -f`];
  const inside = `not __fish_seen_subcommand_from ${commands.map((command) => command.name).join(" ")}`;
  for (const command of commands) lines.push(`complete -c ${name} -n ${single(inside)} -a ${command.name} -d ${single(command.summary)}`);
  for (const option of options) lines.push(fishOption(name, inside, option));
  for (const command of commands) {
    const seen = `__fish_seen_subcommand_from ${command.name}`;
    for (const option of command.options) lines.push(fishOption(name, seen, option));
    const offer = offered(command);
    if (offer === undefined) continue;
    if (offer.choices.length > 0) lines.push(`complete -c ${name} -n ${single(seen)} -a ${single(offer.choices.join(" "))}`);
    else if (offer.completes === "commands") lines.push(`complete -c ${name} -n ${single(seen)} -a '(__fish_complete_subcommand)'`);
    else if (offer.completes !== "nothing") lines.push(`complete -c ${name} -n ${single(seen)} ${fishFiles(offer.completes)}`);
  }
  return lines.join("\n");
}

function fishOption(name: string, condition: string, { long, short, value, description, choices, completes }: OptionDescription): string {
  const parts = [`complete -c ${name}`, "-n", single(condition), "-l", long.slice(2), ...(short === null ? [] : ["-s", short.slice(1)]), "-d", single(sentence(description))];
  if (value !== null) parts.push(choices.length > 0 ? `-x -a ${single(choices.join(" "))}` : completes === "nothing" ? "-x" : `-r ${fishFiles(completes)}`);
  return parts.join(" ");
}

function fishFiles(completes: Completes): string {
  return completes === "folders" ? "-x -a '(__fish_complete_directories)'" : "-F";
}

function longs(options: readonly OptionDescription[]): string[] {
  return options.map(({ long }) => long);
}

/** The first part of a description, short enough for a line of a menu. */
function sentence(text: string): string {
  return text.split(/[;:(\n]/)[0]!.trim();
}

function functionName(name: string): string {
  return `_${name.replace(/\W/g, "_")}`;
}

function quoted(words: readonly string[]): string {
  return single(words.join(" "));
}

/** A word no shell changes. */
function single(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
