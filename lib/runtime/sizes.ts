/** 1024 bytes. */
export const KiB = 1024;
/** 1024 KiB. */
export const MiB = 1024 * KiB;
/** 1024 MiB. */
export const GiB = 1024 * MiB;
