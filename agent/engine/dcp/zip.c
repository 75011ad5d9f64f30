#include "agent/engine/dcp/zip.h"

#include "base/file.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Sizes of the fixed parts, and the flags of an entry (APPNOTE.TXT 4.3 and 4.4.4). */
enum { END = 22, END64 = 56, LOCATOR = 20, CENTRAL = 46, LOCAL = 30 };
enum { FLAG_ENCRYPTED = 1 << 0, FLAG_SIZES_FOLLOW = 1 << 3, FLAG_STRONG = 1 << 6 };
enum { CHUNK = 1 << 18 };

#define MANY16 0xffffu
#define MANY32 0xffffffffu

struct archive {
	int fd;
	int64_t at, size; /* in the file */
	const char *name;
	int64_t directory, directory_size; /* relative to `at` */
	uint64_t entries;
	struct err *e;
};

static int fail(const struct archive *a, const char *why)
{
	return err_set(a->e, ERR_CORRUPT, "%s: damaged archive: %s; save the checkpoint again",
		       a->name, why);
}

static uint64_t number(const uint8_t *at, int width)
{
	uint64_t u = 0;
	for (int i = width; i-- > 0;)
		u = u << 8 | at[i];
	return u;
}

static bool is_signature(const uint8_t *at, int third)
{
	return at[0] == 'P' && at[1] == 'K' && at[2] == third && at[3] == third + 1;
}

/* Reads n bytes at `from` of the archive. */
static int get(const struct archive *a, uint64_t from, void *to, size_t n)
{
	if (from > (uint64_t)a->size || n > (uint64_t)a->size - from)
		return fail(a, "it ends early");
	return file_pread_full(a->fd, to, n, a->at + (int64_t)from)
		       ? err_errno(a->e, ERR_IO, "%s: cannot read it", a->name)
		       : 0;
}

/* --- the end records --- */

static int set_directory(struct archive *a, uint64_t at, uint64_t size, uint64_t n, uint64_t end)
{
	if (at > end || size != end - at)
		return fail(a, "its directory is not where it should be");
	if (size > DCP_ZIP_DIRECTORY_MAX || n > DCP_ZIP_ENTRIES_MAX)
		return fail(a, "it has more entries than a tensor needs");
	a->directory = (int64_t)at;
	a->directory_size = (int64_t)size;
	a->entries = n;
	return 0;
}

static int read_end64(struct archive *a)
{
	uint8_t b[END64];
	uint64_t end = (uint64_t)a->size - END - LOCATOR;
	if (a->size < END + LOCATOR + END64 || get(a, end, b, LOCATOR))
		return fail(a, "its zip64 record is missing");
	uint64_t record = number(b + 8, 8);
	if (!(b[0] == 'P' && b[1] == 'K' && b[2] == 6 && b[3] == 7))
		return fail(a, "its zip64 record is missing");
	if (number(b + 4, 4) || number(b + 16, 4) > 1 || record != end - END64)
		return fail(a, "its zip64 record is not where it should be");
	if (get(a, record, b, END64))
		return -1;
	if (!(b[0] == 'P' && b[1] == 'K' && b[2] == 6 && b[3] == 6) ||
	    number(b + 4, 8) != END64 - 12 || number(b + 16, 4) || number(b + 20, 4) ||
	    number(b + 24, 8) != number(b + 32, 8))
		return fail(a, "its zip64 record is invalid");
	return set_directory(a, number(b + 48, 8), number(b + 40, 8), number(b + 32, 8), record);
}

/* Whether a zip64 locator precedes the end record. Torch always writes one. */
static bool has_locator(const struct archive *a)
{
	uint8_t b[4];
	return a->size >= END + LOCATOR &&
	       !get(a, (uint64_t)a->size - END - LOCATOR, b, sizeof b) && b[0] == 'P' &&
	       b[1] == 'K' && b[2] == 6 && b[3] == 7;
}

static int read_end(struct archive *a)
{
	uint8_t b[END];
	if (a->size < END || get(a, (uint64_t)a->size - END, b, END))
		return fail(a, "it ends early");
	if (!is_signature(b, 5) || number(b + 20, 2))
		return fail(a, "its end record is missing");
	if (number(b + 4, 2) || number(b + 6, 2) || number(b + 8, 2) != number(b + 10, 2))
		return fail(a, "it is on several disks");
	if (has_locator(a))
		return read_end64(a);
	if (number(b + 16, 4) == MANY32 || number(b + 12, 4) == MANY32 ||
	    number(b + 10, 2) == MANY16)
		return fail(a, "its zip64 record is missing");
	return set_directory(a, number(b + 16, 4), number(b + 12, 4), number(b + 10, 2),
			     (uint64_t)a->size - END);
}

/* --- entries --- */

static bool is_name(const char *name, size_t n)
{
	if (!n || n >= DCP_ZIP_NAME || name[0] == '/')
		return false;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)name[i];
		bool starts = i == 0 || name[i - 1] == '/';
		if (c < 0x20 || c >= 0x7f || c == '\\')
			return false;
		if (starts && c == '.' && i + 1 < n && name[i + 1] == '.' &&
		    (i + 2 == n || name[i + 2] == '/'))
			return false;
	}
	return true;
}

/* Replaces the fields that are too small by those of the zip64 extra field. */
static int read_extra(const struct archive *a, const uint8_t *at, size_t n, uint64_t *values[],
		      int n_values)
{
	bool wanted = false;
	for (int i = 0; i < n_values; i++)
		wanted = wanted || *values[i] == MANY32;
	while (wanted && n >= 4) {
		size_t length = (size_t)number(at + 2, 2);
		if (length > n - 4)
			return fail(a, "an extra field is longer than its room");
		const uint8_t *field = at + 4;
		bool zip64 = number(at, 2) == 1;
		at += 4 + length;
		n -= 4 + length;
		for (int i = 0; zip64 && i < n_values; i++) {
			if (*values[i] != MANY32)
				continue;
			if (length < 8)
				return fail(a, "a zip64 field is too short");
			*values[i] = number(field, 8);
			field += 8;
			length -= 8;
		}
		if (zip64)
			return 0;
	}
	return wanted ? fail(a, "a zip64 field is missing") : 0;
}

static int check_method(const struct archive *a, unsigned flags, unsigned method)
{
	if (flags & (FLAG_ENCRYPTED | FLAG_STRONG))
		return err_set(a->e, ERR_UNSUPPORTED,
			       "%s: its entries are encrypted; save it with torch.save", a->name);
	if (method)
		return err_set(a->e, ERR_UNSUPPORTED,
			       "%s: its entries are compressed, which torch.save never does; save "
			       "the checkpoint again",
			       a->name);
	return 0;
}

/* Compares the local header with the directory, and finds where the bytes begin. */
static int read_local(const struct archive *a, struct dcp_zip_entry *entry)
{
	uint8_t b[LOCAL];
	char name[DCP_ZIP_NAME];
	size_t n = strlen(entry->name);
	uint64_t from = (uint64_t)(entry->header - a->at);
	if (get(a, from, b, LOCAL))
		return -1;
	unsigned flags = (unsigned)number(b + 6, 2);
	if (!is_signature(b, 3) || number(b + 26, 2) != n || get(a, from + LOCAL, name, n) ||
	    memcmp(name, entry->name, n))
		return fail(a, "an entry's header is not that of its directory");
	if (check_method(a, flags, (unsigned)number(b + 8, 2)))
		return -1;
	uint64_t size = number(b + 22, 4), at = from + LOCAL + n + number(b + 28, 2);
	if (!(flags & FLAG_SIZES_FOLLOW) && size != MANY32 && size != (uint64_t)entry->size)
		return fail(a, "an entry's header has another size than its directory");
	if (at > (uint64_t)a->directory || (uint64_t)entry->size > (uint64_t)a->directory - at)
		return fail(a, "an entry reaches into the directory");
	entry->at = a->at + (int64_t)at;
	return 0;
}

/* Reads one entry of the directory at *at, and moves *at behind it. */
static int read_central(const struct archive *a, const uint8_t **at, const uint8_t *end,
			struct dcp_zip_entry *out)
{
	const uint8_t *b = *at;
	if (end - b < CENTRAL || !is_signature(b, 1))
		return fail(a, "its directory is invalid");
	size_t name = (size_t)number(b + 28, 2), extra = (size_t)number(b + 30, 2),
	       comment = (size_t)number(b + 32, 2);
	if ((size_t)(end - b) - CENTRAL < name + extra + comment)
		return fail(a, "its directory is invalid");
	*at = b + CENTRAL + name + extra + comment;
	if (check_method(a, (unsigned)number(b + 8, 2), (unsigned)number(b + 10, 2)))
		return -1;
	if (!is_name((const char *)b + CENTRAL, name))
		return fail(a, "the name of an entry is not a plain relative path");
	uint64_t packed = number(b + 20, 4), size = number(b + 24, 4), header = number(b + 42, 4);
	/* in the order of APPNOTE.TXT 4.5.3 */
	uint64_t *wide[] = { &size, &packed, &header };
	if (read_extra(a, b + CENTRAL + name, extra, wide, 3))
		return -1;
	if (packed != size || size > (uint64_t)a->size || header >= (uint64_t)a->directory)
		return fail(a, "an entry lies outside the archive");
	memcpy(out->name, b + CENTRAL, name);
	out->name[name] = '\0';
	out->crc = (uint32_t)number(b + 16, 4);
	out->size = (int64_t)size;
	out->header = a->at + (int64_t)header;
	return read_local(a, out);
}

static int by_place(const void *a, const void *b)
{
	const struct dcp_zip_entry *x = a, *y = b;
	return (x->header > y->header) - (x->header < y->header);
}

static int check_entries(const struct archive *a, const struct dcp_zip *z)
{
	for (int i = 1; i < z->n; i++)
		if (z->entries[i].header < z->entries[i - 1].at + z->entries[i - 1].size)
			return fail(a, "its entries overlap");
	for (int i = 0; i < z->n; i++)
		for (int j = 0; j < i; j++)
			if (!strcmp(z->entries[i].name, z->entries[j].name))
				return fail(a, "two entries have the same name");
	return 0;
}

static int read_entries(const struct archive *a, struct dcp_zip *z)
{
	uint8_t *directory = malloc((size_t)a->directory_size + 1);
	z->entries = calloc(a->entries + 1, sizeof *z->entries);
	int rc = directory && z->entries
			 ? get(a, (uint64_t)a->directory, directory, (size_t)a->directory_size)
			 : err_set(a->e, ERR_NOMEM, "%s: no memory for its directory", a->name);
	const uint8_t *at = directory, *end = at ? at + a->directory_size : at;
	for (; !rc && z->n < (int)a->entries; z->n += !rc)
		rc = read_central(a, &at, end, &z->entries[z->n]);
	if (!rc && at != end)
		rc = fail(a, "its directory is invalid");
	free(directory);
	if (rc)
		return -1;
	qsort(z->entries, (size_t)z->n, sizeof *z->entries, by_place);
	return check_entries(a, z);
}

int dcp_zip_read(int fd, int64_t at, int64_t size, const char *name, struct dcp_zip *out,
		 struct err *e)
{
	struct archive a = { .fd = fd, .at = at, .size = size, .name = name, .e = e };
	struct dcp_zip z = { 0 };
	if (read_end(&a) || read_entries(&a, &z)) {
		dcp_zip_free(&z);
		return -1;
	}
	*out = z;
	return 0;
}

void dcp_zip_free(struct dcp_zip *z)
{
	free(z->entries);
	*z = (struct dcp_zip){ 0 };
}

const struct dcp_zip_entry *dcp_zip_find(const struct dcp_zip *z, const char *name)
{
	for (int i = 0; i < z->n; i++) {
		const char *slash = strchr(z->entries[i].name, '/');
		if (slash && !strcmp(slash + 1, name))
			return &z->entries[i];
	}
	return NULL;
}

int dcp_zip_check(int fd, const struct dcp_zip_entry *entry, const char *name, struct err *e)
{
	uint8_t *piece = malloc(CHUNK);
	uLong crc = crc32(0, NULL, 0);
	int rc = piece ? 0 : err_set(e, ERR_NOMEM, "%s: no memory to read it", name);
	for (int64_t done = 0; !rc && entry->crc && done < entry->size; done += CHUNK) {
		size_t n = (size_t)(entry->size - done < CHUNK ? entry->size - done : CHUNK);
		if (file_pread_full(fd, piece, n, entry->at + done))
			rc = err_errno(e, ERR_IO, "%s: cannot read it", name);
		else
			crc = crc32(crc, piece, (uInt)n);
	}
	free(piece);
	if (!rc && entry->crc && crc != entry->crc)
		rc = err_set(e, ERR_CORRUPT,
			     "%s: the CRC of %s is not that of its directory; the file is damaged; "
			     "copy it again",
			     name, entry->name);
	return rc;
}
