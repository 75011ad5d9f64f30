#include "agent/engine/data/idx.h"

#include <endian.h>
#include <limits.h>
#include <string.h>

static const char magic[9] = "MMIDIDX";

enum {
	VERSION = 1,
	AT_VERSION = 9,
	AT_TYPE = 17,
	AT_SEQUENCES = 18,
	AT_DOCUMENTS = 26,
	HEADER = 34
};

static const struct {
	size_t size;
	const char *word;
} types[] = {
	[TOKEN_U8] = { 1, "u8" },   [TOKEN_I8] = { 1, "i8" },   [TOKEN_I16] = { 2, "i16" },
	[TOKEN_I32] = { 4, "i32" }, [TOKEN_I64] = { 8, "i64" }, [TOKEN_U16] = { 2, "u16" },
};

size_t data_token_size(enum token_type type)
{
	return (size_t)type < sizeof types / sizeof *types ? types[type].size : 0;
}

const char *data_token_word(enum token_type type)
{
	return data_token_size(type) ? types[type].word : "unknown";
}

static uint64_t get64(const unsigned char *at)
{
	uint64_t v;
	memcpy(&v, at, sizeof v);
	return le64toh(v);
}

static int32_t get32(const unsigned char *at)
{
	uint32_t v;
	memcpy(&v, at, sizeof v);
	return (int32_t)le32toh(v);
}

static int parse_header(const unsigned char *p, size_t size, const char *name, struct idx *x,
			uint64_t *bounds, struct err *e)
{
	if (size < HEADER)
		return err_set(e, ERR_CORRUPT,
			       "%s: %zu bytes are too few for an index; pack the data again", name,
			       size);
	if (memcmp(p, magic, sizeof magic))
		return err_set(e, ERR_CORRUPT,
			       "%s: not a Megatron index (it does not start with MMIDIDX); "
			       "make one with `muster data pack`",
			       name);
	if (get64(p + AT_VERSION) != VERSION)
		return err_set(e, ERR_UNSUPPORTED, "%s: index version %llu, only 1 is read", name,
			       (unsigned long long)get64(p + AT_VERSION));
	x->type = p[AT_TYPE];
	if (!data_token_size(x->type))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: type code %d does not hold tokens; integers are read: "
			       "1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16",
			       name, p[AT_TYPE]);
	uint64_t left = size - HEADER, sequences = get64(p + AT_SEQUENCES);
	*bounds = get64(p + AT_DOCUMENTS);
	if (sequences > left / 12 || *bounds > (left - sequences * 12) / 8 ||
	    sequences * 12 + *bounds * 8 != left)
		return err_set(e, ERR_CORRUPT,
			       "%s: %zu bytes do not hold its %llu sequences and %llu document "
			       "boundaries: "
			       "the file was truncated or changed; pack the data again",
			       name, size, (unsigned long long)sequences,
			       (unsigned long long)*bounds);
	x->sequences = (int64_t)sequences;
	return 0;
}

static int check_sequences(const unsigned char *p, const char *name, struct idx *x, struct err *e)
{
	const unsigned char *lengths = p + HEADER, *pointers = lengths + 4 * x->sequences;
	int64_t width = (int64_t)data_token_size(x->type), bytes = 0;
	for (int64_t i = 0; i < x->sequences; i++) {
		int64_t length = get32(lengths + 4 * i);
		if (length < 0)
			return err_set(e, ERR_CORRUPT,
				       "%s: sequence %lld has the length %lld; pack the data again",
				       name, (long long)i, (long long)length);
		if (get64(pointers + 8 * i) != (uint64_t)bytes)
			return err_set(e, ERR_CORRUPT,
				       "%s: sequence %lld starts at byte %lld, but those before it "
				       "end at %lld; "
				       "pack the data again",
				       name, (long long)i, (long long)get64(pointers + 8 * i),
				       (long long)bytes);
		if (length * width > INT64_MAX - bytes)
			return err_set(e, ERR_CORRUPT,
				       "%s: its lengths add up to more than a file can hold", name);
		bytes += length * width;
	}
	x->tokens = bytes / width;
	return 0;
}

static int check_documents(const unsigned char *p, uint64_t bounds, const char *name, struct idx *x,
			   struct err *e)
{
	const unsigned char *at = p + HEADER + 12 * x->sequences;
	uint64_t before = 0;
	if (bounds == 0 || get64(at) != 0)
		return err_set(
			e, ERR_CORRUPT,
			"%s: the first document does not start at sequence 0; pack the data again",
			name);
	for (uint64_t i = 1; i < bounds; i++) {
		uint64_t bound = get64(at + 8 * i);
		if (bound < before || bound > (uint64_t)x->sequences)
			return err_set(
				e, ERR_CORRUPT,
				"%s: document %llu ends at sequence %lld, outside [%llu, %lld]; "
				"pack the data again",
				name, (unsigned long long)i - 1, (long long)bound,
				(unsigned long long)before, (long long)x->sequences);
		before = bound;
	}
	if (before != (uint64_t)x->sequences)
		return err_set(
			e, ERR_CORRUPT,
			"%s: its documents end at sequence %llu of %lld; pack the data again", name,
			(unsigned long long)before, (long long)x->sequences);
	x->documents = (int64_t)bounds - 1;
	return 0;
}

int data_idx_parse(const void *data, size_t size, const char *name, struct idx *out, struct err *e)
{
	struct idx x = { 0 };
	uint64_t bounds = 0;
	if (parse_header(data, size, name, &x, &bounds, e) || check_sequences(data, name, &x, e) ||
	    check_documents(data, bounds, name, &x, e))
		return -1;
	*out = x;
	return 0;
}

int64_t data_idx_document(const struct idx *x, const void *data, int64_t document)
{
	const unsigned char *pointers = (const unsigned char *)data + HEADER + 4 * x->sequences;
	uint64_t sequence = get64(pointers + 8 * (x->sequences + document));
	if (sequence >= (uint64_t)x->sequences)
		return x->tokens;
	return (int64_t)(get64(pointers + 8 * sequence) / data_token_size(x->type));
}

static void put64(struct buf *out, int64_t v)
{
	uint64_t le = htole64((uint64_t)v);
	buf_add(out, &le, sizeof le);
}

void data_idx_write(enum token_type type, const int32_t *lengths, int64_t sequences,
		    const int64_t *bounds, int64_t documents, struct buf *out)
{
	unsigned char code = (unsigned char)type;
	int64_t at = 0;
	buf_add(out, magic, sizeof magic);
	put64(out, VERSION);
	buf_add(out, &code, 1);
	put64(out, sequences);
	put64(out, documents + 1);
	for (int64_t i = 0; i < sequences; i++) {
		uint32_t le = htole32((uint32_t)lengths[i]);
		buf_add(out, &le, sizeof le);
	}
	for (int64_t i = 0; i < sequences; i++) {
		put64(out, at);
		at += lengths[i] * (int64_t)data_token_size(type);
	}
	for (int64_t i = 0; i <= documents; i++)
		put64(out, bounds[i]);
}
