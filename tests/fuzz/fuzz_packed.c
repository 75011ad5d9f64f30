/* Any text as packed slices: it is refused, or writing the slices that were read gives the same
 * text. The first byte chooses the dimensions. */
#include "agent/engine/ckpt/format/packed.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 256 };

static int append(void *arg, const struct manifest_slice *s, struct err *e)
{
	struct manifest_tensor *t = arg;
	if (t->n == MOST)
		return err_set(e, ERR_NOMEM, "too many slices for this test");
	t->slices[t->n++] = *s;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	if (size < 1)
		return 0;
	struct manifest_tensor t = { .dims = 1 + data[0] % 2,
				     .slices = calloc(MOST, sizeof *t.slices) };
	if (!t.slices)
		abort();
	if (!ckpt_packed_read((const char *)data + 1, size - 1, t.dims, append, &t, &e)) {
		ckpt_packed_write(&t, &text);
		if (text.len != size - 1 || memcmp(buf_str(&text), data + 1, size - 1))
			abort();
	}
	buf_fini(&text);
	free(t.slices);
	return 0;
}
