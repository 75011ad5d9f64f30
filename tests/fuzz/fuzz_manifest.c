/* Any bytes as a manifest: they are refused, or the manifest is the same when it is written and
 * read again, with packed slices or a list. The digest in the first line is corrected first; otherwise the fuzzer would never get
 * past it. */
#include "agent/engine/ckpt/format/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_twice(const struct manifest *m)
{
	struct err e = ERR_INIT;
	struct manifest again;
	struct buf one = BUF_INIT, two = BUF_INIT;
	ckpt_manifest_write(m, &one);
	if (ckpt_manifest_parse(buf_str(&one), one.len, "again", &again, &e) ||
	    ckpt_manifest_prove(&again, &e))
		abort();
	ckpt_manifest_write(&again, &two);
	if (one.len != two.len || memcmp(one.data, two.data, one.len))
		abort();
	ckpt_manifest_fini(&again);
	buf_clear(&one);
	buf_clear(&two);
	ckpt_manifest_write_as(m, true, &one);
	if (ckpt_manifest_parse(buf_str(&one), one.len, "packed", &again, &e) ||
	    ckpt_manifest_prove(&again, &e))
		abort();
	ckpt_manifest_write_as(&again, true, &two);
	if (one.len != two.len || memcmp(one.data, two.data, one.len))
		abort();
	ckpt_manifest_fini(&again);
	buf_fini(&one);
	buf_fini(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct manifest m;
	struct buf text = BUF_INIT;
	char hex[DIGEST_HEX];
	if (ckpt_manifest_parse((const char *)data, size, "fuzz", &m, &e) == 0)
		ckpt_manifest_fini(&m);
	struct digest d = ckpt_digest_of(data, size);
	ckpt_digest_hex(&d, hex);
	buf_printf(&text, "{\"digest\": \"%s\",\n", hex);
	buf_add(&text, data, size);
	if (ckpt_manifest_parse(text.data, text.len, "fuzz", &m, &e) == 0) {
		if (ckpt_manifest_prove(&m, &e) == 0)
			write_twice(&m);
		ckpt_manifest_fini(&m);
	}
	buf_fini(&text);
	return 0;
}
