// Pretends to be another system, then asks for the native interface.
export {};
Object.defineProperty(process, "platform", { value: "darwin" });
const { native } = await import("../../../ffi/native.ts");
try {
  native();
  console.log("no error");
} catch (error) {
  const { name, message, hint } = error as { name: string; message: string; hint: string };
  console.log(JSON.stringify({ name, message, hint }));
}
