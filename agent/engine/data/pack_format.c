#include "agent/engine/data/pack_format.h"

#include "agent/engine/text/utf8.h"

#include <string.h>
#include <strings.h>

struct file_format {
	const char *word;
	size_t at; /* offset of the magic number */
	const char *magic;
	size_t len;          /* 0: the format is recognized by its name only */
	const char *endings; /* one blank before and after each */
	const char *convert; /* a command; if it ends in a dot, a sentence */
};

#define BYTES(text) text, sizeof(text) - 1

static const char packed_ids[] =
	"it is packed already: data.path takes it as it is (see `muster data show`).";
static const char program[] = "write text or .jsonl with the program that made it.";
static const char weights[] =
	"it holds weights, not text: `muster ckpt import` reads a model's folder.";

/* clang-format off */
static const struct file_format formats[] = {
	{ "a Parquet file", 0, BYTES("PAR1"), " .parquet ",
	  "python3 -c 'import json, pyarrow.parquet as p, sys; [print(json.dumps(r)) for b in p.ParquetFile(sys.argv[1])"
	  ".iter_batches(columns=[\"{field}\"]) for r in b.to_pylist()]' {} >{}.jsonl" },
	{ "an Arrow file", 0, BYTES("ARROW1\0\0"), " .feather ",
	  "python3 -c 'import json, pyarrow as a, sys; f = a.ipc.open_file(sys.argv[1]); [print(json.dumps(r)) for i in "
	  "range(f.num_record_batches) for r in f.get_batch(i).select([\"{field}\"]).to_pylist()]' {} >{}.jsonl" },
	{ "an Arrow stream", 0, BYTES("\xff\xff\xff\xff"), " .arrow .arrows ",
	  "python3 -c 'import json, pyarrow as a, sys; [print(json.dumps(r)) for b in a.ipc.open_stream(sys.argv[1]) for r in "
	  "b.select([\"{field}\"]).to_pylist()]' {} >{}.jsonl" },
	{ "a NumPy array", 0, BYTES("\x93NUMPY"), " .npy ",
	  "python3 -c 'import numpy as n, sys; n.load(sys.argv[1]).astype(\"<i4\").tofile(sys.argv[1] + \".i32\")' {} && muster data "
	  "pack {}.i32 --dtype i32 -o PREFIX" },
	{ "NumPy arrays", 0, NULL, 0, " .npz ",
	  "python3 -c 'import numpy as n, sys; f = n.load(sys.argv[1]); n.concatenate([f[k].ravel() for k in f.files])"
	  ".astype(\"<i4\").tofile(sys.argv[1] + \".i32\")' {} && muster data pack {}.i32 --dtype i32 -o PREFIX" },
	{ "weights of PyTorch", 0, NULL, 0, " .pt .pth .ckpt ", weights },
	{ "a zip archive", 0, BYTES("PK\x03\x04"), " .zip ", "unzip {} -d {}.files" },
	{ "a tar archive", 257, BYTES("ustar"), " .tar .tgz ", "mkdir {}.files && tar -xf {} -C {}.files" },
	{ "compressed by xz", 0, BYTES("\xfd" "7zXZ\0"), " .xz ", "xz -dk {}" },
	{ "compressed by bzip2", 4, BYTES("1AY&SY"), " .bz2 ", "bzip2 -dk {}" },
	{ "compressed by lz4", 0, BYTES("\x04\x22\x4d\x18"), " .lz4 ", "lz4 -dk {}" },
	{ "compressed by lzip", 0, BYTES("LZIP\x01"), " .lz ", "lzip -dk {}" },
	{ "compressed by compress", 0, BYTES("\x1f\x9d"), " .Z ", "gzip -dk {}" },
	{ "compressed by Brotli", 0, NULL, 0, " .br ", "brotli -dk {}" },
	{ "compressed by gzip inside another compressed file", 0, BYTES("\x1f\x8b\x08"), "", "unpack the outer one before." },
	{ "compressed by zstd inside another compressed file", 0, BYTES("\x28\xb5\x2f\xfd"), "", "unpack the outer one before." },
	{ "a 7z archive", 0, BYTES("7z\xbc\xaf\x27\x1c"), " .7z ", "7z x {}" },
	{ "a RAR archive", 0, BYTES("Rar!\x1a\x07"), " .rar ", "unrar x {}" },
	{ "a PDF", 0, BYTES("%PDF-"), " .pdf ", "pdftotext {} {}.txt" },
	{ "text in UTF-32", 0, BYTES("\xff\xfe\0\0"), "", "iconv -f UTF-32 -t UTF-8 {} >{}.txt" },
	{ "text in UTF-16", 0, BYTES("\xff\xfe"), "", "iconv -f UTF-16 -t UTF-8 {} >{}.txt" },
	{ "text in UTF-16", 0, BYTES("\xfe\xff"), "", "iconv -f UTF-16 -t UTF-8 {} >{}.txt" },
	{ "an SQLite database", 0, BYTES("SQLite format 3\0"), " .sqlite .sqlite3 ",
	  "sqlite3 {} \"select json_object('text', COLUMN) from TABLE\" >{}.jsonl" },
	{ "an HDF5 file", 0, BYTES("\x89HDF\r\n\x1a\n"), " .h5 .hdf5 ", program },
	{ "an Avro file", 0, BYTES("Obj\x01"), " .avro ", program },
	{ "an ORC file", 0, NULL, 0, " .orc ",
	  "python3 -c 'import json, pyarrow.orc as o, sys; [print(json.dumps(r)) for r in o.ORCFile(sys.argv[1])"
	  ".read(columns=[\"{field}\"]).to_pylist()]' {} >{}.jsonl" },
	{ "records of TensorFlow", 0, NULL, 0, " .tfrecord .tfrecords ", program },
	{ "a Python pickle", 0, BYTES("\x80\x04\x95"), " .pkl .pickle ", program },
	{ "a Python pickle", 0, BYTES("\x80\x05\x95"), "", program },
	{ "a safetensors file", 4, BYTES("\0\0\0\0{\""), " .safetensors ", weights },
	{ "a GGUF file", 0, BYTES("GGUF\x03\0\0\0"), " .gguf ", weights },
	{ "an index of packed tokens", 0, BYTES("MMIDIDX\0"), " .idx ", packed_ids },
	{ "tokens of llm.c", 0, BYTES("\x88\xd8\x34\x01"), "", packed_ids },
	{ "binary", 0, NULL, 0, " .bin ", "if it holds token ids, as nanoGPT's train.bin does, name their type with --dtype u16." },
	{ "tokens of llm.c", 0, BYTES("\xa1\xd9\x34\x01"), "", packed_ids },
};
/* clang-format on */
enum { FORMATS = sizeof formats / sizeof *formats };

static const char *const containers[] = { ".gz", ".zst" };
static const char *const lines[] = { ".jsonl", ".ndjson", ".json" };

static bool ends_in(const char *file, size_t len, const char *ending)
{
	size_t n = strlen(ending);
	return len > n && !strncasecmp(file + len - n, ending, n);
}

/* Returns the length of the name without the ending of a container. */
static size_t length_without_container(const char *file)
{
	size_t len = strlen(file);
	for (size_t i = 0; i < sizeof containers / sizeof *containers; i++)
		if (ends_in(file, len, containers[i]))
			return len - strlen(containers[i]);
	return len;
}

bool data_pack_format_is_compressed(const char *file)
{
	return length_without_container(file) < strlen(file);
}

bool data_pack_format_is_lines(const char *file, bool asked)
{
	size_t len = length_without_container(file);
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		if (ends_in(file, len, lines[i]))
			return true;
	return asked && !ends_in(file, len, ".txt");
}

static const struct file_format *find_by_magic(const char *head, size_t n, size_t least)
{
	for (size_t i = 0; i < FORMATS; i++)
		if (formats[i].len >= least && formats[i].len &&
		    n >= formats[i].at + formats[i].len &&
		    !memcmp(head + formats[i].at, formats[i].magic, formats[i].len))
			return &formats[i];
	return NULL;
}

static const struct file_format *find_by_name(const char *file)
{
	const char *dot = strrchr(file, '.');
	struct buf want = BUF_INIT;
	const struct file_format *found = NULL;
	if (!dot || strchr(dot, '/') || strchr(dot, ' '))
		return NULL;
	buf_printf(&want, " %s ", dot);
	for (size_t i = 0; i < FORMATS && !found && !buf_failed(&want); i++)
		if (strcasestr(formats[i].endings, buf_str(&want)))
			found = &formats[i];
	buf_fini(&want);
	return found;
}

void data_pack_format_quote_word(struct buf *out, const char *word)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+,/:@%=";
	if (!word[strspn(word, plain)]) {
		buf_puts(out, word);
		return;
	}
	buf_puts(out, "'");
	for (const char *at = word; *at; at++) {
		if (*at == '\'')
			buf_puts(out, "'\\''");
		else
			buf_add(out, at, 1);
	}
	buf_puts(out, "'");
}

/* Finds the format. If the bytes do not determine it, the name does, such as .npz among zip
 * archives. */
static const struct file_format *find_format(const char *file, const char *head, size_t n,
					     bool text)
{
	const struct file_format *seen = find_by_magic(head, n, 1),
				 *named = text && !seen ? NULL : find_by_name(file);
	return named && (!named->len || !seen) ? named : seen;
}

/* The command puts the field between the quotes of two languages: only safe characters are kept. */
static const char *safe_field(const char *field)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	return field && *field && !field[strspn(field, plain)] ? field : "text";
}

static int refuse_format(const struct file_format *k, const char *file, const char *field,
			 struct err *e)
{
	struct buf command = BUF_INIT;
	bool words = k->convert[strlen(k->convert) - 1] == '.';
	for (const char *at = k->convert; *at;) {
		if (!strncmp(at, "{}", 2)) {
			data_pack_format_quote_word(&command, file);
			at += 2;
		} else if (!strncmp(at, "{field}", 7)) {
			buf_puts(&command, safe_field(field));
			at += 7;
		} else {
			buf_add(&command, at++, 1);
		}
	}
	err_set(e, ERR_UNSUPPORTED,
		words ? "%s: is %s, which data pack does not read; %.*s"
		      : "%s: is %s, which data pack does not read; convert it: %.*s",
		file, k->word, (int)(command.len - words), buf_str(&command));
	buf_fini(&command);
	return -1;
}

size_t data_pack_format_nuls(const char *head, size_t n)
{
	size_t nuls = 0;
	for (const char *at = head, *end = head + n; (at = memchr(at, '\0', (size_t)(end - at)));
	     at++)
		nuls++;
	return nuls;
}

int data_pack_format_check(const char *file, const char *head, size_t n, const char *field,
			   struct err *e)
{
	size_t nuls = data_pack_format_nuls(head, n);
	size_t run = text_utf8_run(head, n);
	bool text = !nuls && (run == n || text_utf8_begun(head + run, n - run));
	const struct file_format *k = find_format(file, head, n, text);
	if (k)
		return refuse_format(k, file, field, e);
	if (nuls >= FORMAT_NULS_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: is not text (%zu NULs in its first %zu bytes); convert it to "
			       "text, or pack its bytes as they are with --raw",
			       file, nuls, n);
	return 0;
}

int data_pack_format_check_ids(const char *file, const char *head, size_t n, struct err *e)
{
	const struct file_format *k = find_by_magic(head, n, FORMAT_MAGIC_MIN);
	/* These bytes may be two ids of 65535, or one of -1, which are valid, although Arrow's
	 * streams begin in the same way. */
	bool ids = k && n >= 4 && !memcmp(head, "\xff\xff\xff\xff", 4);
	return k && !ids ? refuse_format(k, file, NULL, e) : 0;
}
