/*
 * crc32c — the CRC-32C (Castagnoli) of RFC 3720, and the masked form of TensorFlow's record files.
 *
 * Such a file stores the CRC of data that may itself hold CRCs. Its format therefore stores the CRC
 * rotated right by 15 bits plus a constant.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_CRC32C_H
#define MUSTER_LAUNCHER_EXPORTS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t exports_crc32c(const void *data, size_t n);
uint32_t exports_crc32c_masked(const void *data, size_t n);

#endif
