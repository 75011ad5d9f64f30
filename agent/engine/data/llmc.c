#include "agent/engine/data/llmc.h"

#include <endian.h>
#include <string.h>

static const struct {
	int32_t magic, version;
	enum token_type type;
	const char *word;
	int32_t begin;
} kinds[] = {
	{ 20240520, 1, TOKEN_U16, "u16", 50256 },
	{ 20240801, 7, TOKEN_I32, "u32", 128000 },
};

enum { KINDS = sizeof kinds / sizeof *kinds, AT_VERSION = 4, AT_TOKENS = 8 };

static int32_t get32(const void *data, size_t at)
{
	uint32_t v;
	memcpy(&v, (const char *)data + at, sizeof v);
	return (int32_t)le32toh(v);
}

static int kind_of(const void *data, size_t size)
{
	for (int i = 0; size >= sizeof(int32_t) && i < KINDS; i++)
		if (get32(data, 0) == kinds[i].magic)
			return i;
	return -1;
}

bool data_llmc_is(const void *data, size_t size)
{
	return kind_of(data, size) >= 0;
}

int data_llmc_parse(const void *data, size_t size, const char *name, struct llmc *out,
		    struct err *e)
{
	int k = kind_of(data, size);
	if (k < 0)
		return err_set(e, ERR_CORRUPT,
			       "%s: not a token file of llm.c (it does not start with 20240520 or "
			       "20240801); "
			       "name one, or the prefix of Megatron's .bin and .idx",
			       name);
	if (size < LLMC_HEADER)
		return err_set(e, ERR_CORRUPT,
			       "%s: %zu bytes are too few for llm.c's header of %d: the file was "
			       "cut; write it "
			       "again",
			       name, size, LLMC_HEADER);
	if (get32(data, AT_VERSION) != kinds[k].version)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: version %d of llm.c's token file %d, only %d is read", name,
			       get32(data, AT_VERSION), kinds[k].magic, kinds[k].version);
	int64_t tokens = get32(data, AT_TOKENS), width = (int64_t)data_token_size(kinds[k].type);
	if (tokens < 0 || (uint64_t)(LLMC_HEADER + tokens * width) != size)
		return err_set(e, ERR_CORRUPT,
			       "%s: %zu bytes, its header describes %lld (%lld %s tokens): the "
			       "file was cut or "
			       "changed; write it again",
			       name, size, (long long)(LLMC_HEADER + tokens * width),
			       (long long)tokens, kinds[k].word);
	*out = (struct llmc){ .type = kinds[k].type,
			      .word = kinds[k].word,
			      .tokens = tokens,
			      .begin = kinds[k].begin };
	return 0;
}
