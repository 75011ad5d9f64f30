#include "base/hash.h"

#include <string.h>

uint64_t hash_bytes(const void *data, size_t n)
{
	const unsigned char *bytes = data;
	uint64_t h = 0xcbf29ce484222325u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ bytes[i]) * 0x100000001b3u;
	return h;
}

uint64_t hash_text(const char *text)
{
	return hash_bytes(text, strlen(text));
}
