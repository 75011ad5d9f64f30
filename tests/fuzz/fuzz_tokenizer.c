/* Any bytes as a tokenizer.json: they are refused, or they give a tokenizer that encodes and
 * decodes without harm. */
#include "agent/engine/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int collect(void *arg, const int32_t *ids, size_t n, struct err *e)
{
	(void)e;
	buf_add(arg, ids, n * sizeof *ids);
	return 0;
}

static void use(const struct tokenizer *t)
{
	static const char said[] =
		"ab  the 12 <s>\xe2\x96\x81x\xff caf\xc3\xa9 \xe4\xb8\xad\n<mask>  it's "
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
	struct err e = ERR_INIT;
	struct encoder *c = NULL;
	struct decoder *d = NULL;
	struct buf ids = BUF_INIT, text = BUF_INIT;
	if (!text_encoder_open(t, &c, &e) && !text_decoder_open(t, &d, &e)) {
		if (text_encoder_encode(c, said, sizeof said - 1, collect, &ids, &e))
			ids.len = 0;
		for (size_t i = 0; i < ids.len; i += sizeof(int32_t)) {
			int32_t id;
			memcpy(&id, ids.data + i, sizeof id);
			if (id < 0 || id >= tokenizer_vocab(t) ||
			    text_decoder_put(d, id, &text, &e))
				abort();
		}
		text_decoder_end(d, &text);
	}
	text_encoder_close(c);
	text_decoder_close(d);
	buf_fini(&ids);
	buf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct tokenizer *t;
	if (tokenizer_parse((const char *)data, size, "fuzz.json", &t, &e))
		return 0;
	use(t);
	tokenizer_close(t);
	return 0;
}
