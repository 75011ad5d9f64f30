#include "libcomm/shm/copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <emmintrin.h>

enum { LINE = 64, FAR_BYTES = 4 << 20 };

/* Copies whole cache lines; `to` is aligned to one. */
static void stream_lines(char *to, const char *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += LINE) {
		const __m128i *s = (const __m128i *)(const void *)(from + i);
		__m128i *d = (__m128i *)(void *)(to + i);
		__m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1);
		__m128i c = _mm_loadu_si128(s + 2), e = _mm_loadu_si128(s + 3);
		_mm_stream_si128(d, a);
		_mm_stream_si128(d + 1, b);
		_mm_stream_si128(d + 2, c);
		_mm_stream_si128(d + 3, e);
	}
	_mm_sfence();
}

void comm_copy_streaming(void *to, const void *from, size_t bytes, size_t all)
{
	if (all < FAR_BYTES || bytes < 2 * LINE) {
		if (bytes)
			memcpy(to, from, bytes);
		return;
	}
	size_t head = -(uintptr_t)to % LINE, lines = (bytes - head) & ~(size_t)(LINE - 1);
	memcpy(to, from, head);
	stream_lines((char *)to + head, (const char *)from + head, lines);
	memcpy((char *)to + head + lines, (const char *)from + head + lines, bytes - head - lines);
}

#else

void comm_copy_streaming(void *to, const void *from, size_t bytes, size_t all)
{
	(void)all;
	if (bytes)
		memcpy(to, from, bytes);
}

#endif
