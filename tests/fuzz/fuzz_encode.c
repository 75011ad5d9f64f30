/* Any bytes as a text: a byte-level vocabulary gives them back. Run it in the root of the source
 * tree. */
#include "agent/engine/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const files[] = { "gpt2",      "llama3", "sequence", "added", "mixtral",
				     "metaspace", "nfc",    "folded",   "nfkc",  "nfkd" };
enum { FILES = sizeof files / sizeof *files, LOSSLESS = 3 };

struct open_file {
	struct tokenizer *t;
	struct encoder *c;
	struct decoder *d;
};

static struct open_file *file_of(int i)
{
	static struct open_file open[FILES];
	struct err e = ERR_INIT;
	char path[64];
	if (open[i].t)
		return &open[i];
	snprintf(path, sizeof path, "tests/golden/text/%s.json", files[i]);
	if (tokenizer_open(path, &open[i].t, &e) || text_encoder_open(open[i].t, &open[i].c, &e) ||
	    text_decoder_open(open[i].t, &open[i].d, &e)) {
		fprintf(stderr, "%s\n", e.text);
		abort();
	}
	return &open[i];
}

static int collect(void *arg, const int32_t *ids, size_t n, struct err *e)
{
	(void)e;
	buf_add(arg, ids, n * sizeof *ids);
	return 0;
}

/* Special tokens have no text, so a text that contains one does not come back. */
static void check_ids(struct open_file *f, const char *text, size_t n, const struct buf *ids,
		      bool lossless)
{
	struct err e = ERR_INIT;
	struct buf back = BUF_INIT;
	for (size_t i = 0; i < ids->len; i += sizeof(int32_t)) {
		int32_t id;
		memcpy(&id, ids->data + i, sizeof id);
		if (text_decoder_put(f->d, id, &back, &e))
			abort();
	}
	text_decoder_end(f->d, &back);
	if (lossless && !memmem(text, n, "<|endoftext|>", 13) && !memmem(text, n, "<s>", 3) &&
	    !memmem(text, n, "</s>", 4) && (back.len != n || (n && memcmp(back.data, text, n))))
		abort();
	buf_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct buf ids = BUF_INIT;
	if (!size)
		return 0;
	int i = data[0] % FILES;
	struct open_file *f = file_of(i);
	if (text_encoder_encode(f->c, (const char *)data + 1, size - 1, collect, &ids, &e)) {
		fprintf(stderr, "%s\n", e.text);
		abort();
	}
	check_ids(f, (const char *)data + 1, size - 1, &ids, i < LOSSLESS);
	buf_fini(&ids);
	return 0;
}
