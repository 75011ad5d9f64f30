#include "agent/engine/data/pack_ids.h"

#include "agent/engine/data/pack_format.h"
#include "agent/engine/data/pack_stream.h"
#include "agent/engine/data/tokens.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

static int64_t get_u16(const char *at)
{
	uint16_t v;
	memcpy(&v, at, sizeof v);
	return le16toh(v);
}

static int64_t get_u32(const char *at)
{
	uint32_t v;
	memcpy(&v, at, sizeof v);
	return le32toh(v);
}

static int64_t get_i32(const char *at)
{
	return (int32_t)(uint32_t)get_u32(at);
}

static int64_t get_i64(const char *at)
{
	uint64_t v;
	memcpy(&v, at, sizeof v);
	return (int64_t)le64toh(v);
}

static const struct type {
	const char *word;
	size_t width;
	int64_t (*get)(const char *at);
	enum token_type becomes;
} types[] = {
	{ "u16", 2, get_u16, TOKEN_U16 },
	{ "u32", 4, get_u32, TOKEN_I32 },
	{ "i32", 4, get_i32, TOKEN_I32 },
	{ "i64", 8, get_i64, TOKEN_I32 },
};

struct job {
	const struct type *type;
	const struct pack_ids_options *opt;
	struct token_writer *writer;
	const char *file;
	int64_t at; /* tokens of the file that were read */
	struct pack_ids_report *report;
};

const char *data_pack_ids_types(void)
{
	return "u16, u32, i32, i64";
}

static int find_type(const char *word, const struct type **out, struct err *e)
{
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].word, word)) {
			*out = &types[i];
			return 0;
		}
	return err_set(e, ERR_USAGE, "--dtype %.40s: no such type of token ids; known: %s", word,
		       data_pack_ids_types());
}

static int check_id(const struct job *j, int64_t id, struct err *e)
{
	int64_t most = j->opt->vocab ? j->opt->vocab - 1 : INT32_MAX;
	if (id >= 0 && id <= most)
		return 0;
	return err_set(e, ERR_CORRUPT,
		       "%s: token %" PRId64 " is %" PRId64 ", and ids are 0 to %" PRId64
		       "; is --dtype %s the file's type%s?",
		       j->file, j->at, id, most, j->type->word,
		       j->opt->vocab ? ", and --vocab its vocabulary" : "");
}

/* Writes ids [n] of the writer's type. */
static int put_ids(struct job *j, const int32_t *ids, size_t n, struct err *e)
{
	uint16_t narrow[n + 1];
	for (size_t i = 0; i < n; i++)
		narrow[i] = (uint16_t)ids[i];
	return data_token_writer_add(
		j->writer, j->type->becomes == TOKEN_U16 ? (const void *)narrow : ids, n, e);
}

static int put_chunk(struct job *j, const char *bytes, size_t n, struct err *e)
{
	enum { PART = 2048 };
	int32_t ids[PART];
	size_t held = 0;
	for (size_t i = 0; i < n; i++) {
		int64_t id = j->type->get(bytes + i * j->type->width);
		if (check_id(j, id, e))
			return -1;
		j->at++;
		ids[held++] = (int32_t)id;
		if (id > j->report->largest)
			j->report->largest = (int32_t)id;
		bool end = id == j->opt->end;
		if ((end || held == PART || i + 1 == n) && put_ids(j, ids, held, e))
			return -1;
		if (end || held == PART)
			held = 0;
		if (end && data_token_writer_end(j->writer, e))
			return -1;
	}
	return 0;
}

static int check_size(const struct job *j, long long bytes, struct err *e)
{
	if (bytes % (long long)j->type->width == 0)
		return 0;
	return err_set(
		e, ERR_CORRUPT,
		"%s: %lld bytes are not a whole number of ids of %zu bytes (%s): the file was "
		"cut, or --dtype is not its "
		"type",
		j->file, bytes, j->type->width, j->type->word);
}

static int put_all(struct job *j, struct stream *s, char *chunk, struct err *e)
{
	int fd;
	size_t held = 0, got = 1, width = j->type->width;
	if (check_size(j, (long long)data_stream_plain(s, &fd), e))
		return -1;
	while (got) {
		if (data_stream_read(s, chunk + held, CHUNK - held, &got, e))
			return -1;
		held += got;
		size_t whole = held / width;
		if (put_chunk(j, chunk, whole, e))
			return -1;
		held -= whole * width;
		memmove(chunk, chunk + whole * width, held);
	}
	if (check_size(j, j->at * (long long)width + (long long)held, e))
		return -1;
	if (!j->at)
		j->report->empty++;
	return data_token_writer_end(j->writer, e);
}

static int put_file(struct job *j, struct stream *s, struct err *e)
{
	char *chunk = malloc(CHUNK);
	if (!chunk)
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", j->file);
	int rc = put_all(j, s, chunk, e);
	free(chunk);
	return rc;
}

static int pack_file(struct job *j, const char *file, struct err *e)
{
	struct stream *s;
	size_t n;
	if (data_stream_open(file, !data_pack_format_is_compressed(file), &s, e))
		return -1;
	const char *head = data_stream_head(s, &n);
	j->file = file;
	j->at = 0;
	int rc = data_pack_format_check_ids(file, head, n, e) || put_file(j, s, e) ? -1 : 0;
	data_stream_close(s);
	return rc;
}

int data_pack_ids(const char *prefix, char *const *files, int64_t n,
		  const struct pack_ids_options *opt, struct pack_ids_report *out, struct err *e)
{
	struct pack_ids_report report = { 0 };
	struct job j = { .opt = opt, .report = &report };
	if (find_type(opt->type, &j.type, e) ||
	    data_token_writer_open(prefix, j.type->becomes, &j.writer, e))
		return -1;
	int rc = 0;
	for (int64_t i = 0; i < n && !rc; i++)
		rc = pack_file(&j, files[i], e);
	report.type = j.type->becomes;
	report.tokens = data_token_writer_tokens(j.writer);
	report.documents = data_token_writer_documents(j.writer);
	if (!rc && !report.tokens)
		rc = err_set(e, ERR_USAGE,
			     "%s: the %" PRId64 " files hold no token; nothing was packed", prefix,
			     n);
	if (!rc)
		rc = data_token_writer_commit(j.writer, e);
	data_token_writer_close(j.writer);
	if (!rc)
		*out = report;
	return rc;
}
