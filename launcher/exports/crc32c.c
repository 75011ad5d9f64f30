#include "launcher/exports/crc32c.h"

#include <pthread.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */
#define MASK       0xa282ead8u

static uint32_t table[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		table[i] = crc;
	}
}

uint32_t exports_crc32c(const void *data, size_t n)
{
	const unsigned char *at = data;
	uint32_t crc = ~0u;
	pthread_once(&once, fill_table);
	for (size_t i = 0; i < n; i++)
		crc = crc >> 8 ^ table[(crc ^ at[i]) & 0xff];
	return ~crc;
}

uint32_t exports_crc32c_masked(const void *data, size_t n)
{
	uint32_t crc = exports_crc32c(data, n);
	return (crc >> 15 | crc << 17) + MASK;
}
