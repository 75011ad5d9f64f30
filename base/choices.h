/*
 * choices — which of several ways to compute the same thing is fastest on this chip, as measured.
 *
 * A choice is a key and a value. The key is a short text: what is chosen and all that the choice
 * depends on, such as "matmul m=4096 n=768 …". The value is a few bytes: a number, or an algorithm
 * that a library can take again. Choices belong to a machine: a text with the chip's name, its
 * multiprocessors and the versions of the driver and of the libraries. Choices of other machines
 * are kept and written, but never found.
 *
 * A backend on a device has one table (backend_choices). Who measures asks first:
 *
 *     if (!choices_find(c, key, &value, sizeof value, &length) && choices_wanted(c))
 *             measure, then choices_put(c, key, &value, length);
 *
 * and does neither while a graph is recorded. It keeps what it found itself, and drops it when
 * choices_version has changed: then a choice may have become another one.
 *
 * Ranks that compute the same thing must compute it the same way, or their bits differ; ranks of a
 * tensor-parallel group that route tokens differently would even wait for each other for ever.
 * Measured times differ from rank to rank. So there are three modes:
 *   - CHOICES_FIXED: nothing is measured. What the table has is used; for the rest, the library's
 *     first choice.
 *   - CHOICES_MEASURED: a choice is used as soon as it is measured. For one process.
 *   - CHOICES_PROPOSED: a choice that is measured or read is only a proposal, which choices_find
 *     does not find. The ranks then merge their texts into one (choices_write), and each calls
 *     choices_agree, which drops its own proposals, takes the text, and fixes the table.
 *
 * The text, which is also the file's content, has one line per choice. Fields are separated by tabs;
 * bytes are in hexadecimal; a note is for people; the check is hash_bytes of the line before its last
 * tab:
 *
 *     muster-choices 1
 *     MACHINE <tab> KEY <tab> VALUE <tab> NOTE <tab> CHECK
 *
 * A line that is damaged, cut or too long is skipped, and so is a text with another first line. So a
 * file that was lost is measured again, and two files can be merged by their lines.
 */
#ifndef MUSTER_BASE_CHOICES_H
#define MUSTER_BASE_CHOICES_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CHOICES_TEXT = 192,  /* bytes of a machine, a key or a note, with its NUL */
	CHOICES_VALUE = 128, /* bytes of a value */
	CHOICES_MOST = 16384 /* choices of a table; further ones are not kept */
};

enum choices_mode { CHOICES_FIXED, CHOICES_MEASURED, CHOICES_PROPOSED };

struct choices;

/* An empty table in mode CHOICES_FIXED; NULL: no memory. */
struct choices *choices_open(void);
void choices_close(struct choices *c); /* NULL is allowed */

/* Control characters become blanks, and what is too long is cut. */
void choices_set_machine(struct choices *c, const char *machine);
const char *choices_machine(const struct choices *c);
void choices_set_mode(struct choices *c, enum choices_mode mode);

/* Sets value and its length. false: there is none, or it has more than `size` bytes. */
bool choices_find(const struct choices *c, const char *key, void *value, size_t size,
		  size_t *length);
/* Whether something new may be measured now. */
bool choices_wanted(const struct choices *c);
/* Whether a proposal for this key exists, so that it need not be measured again. */
bool choices_proposed(const struct choices *c, const char *key);
/* Keeps a measured choice, in place of an earlier one of that key. Nothing happens if there is no
 * memory, or if a key or value is too long or empty, or a key has a control character. */
void choices_put(struct choices *c, const char *key, const void *value, size_t length);
/* Sets the note of the choice that was put last, such as the times that were measured; what is too
 * long is cut. */
void choices_note(struct choices *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The note of choice i of this machine and its key, in the order in which they were put; false:
 * there are fewer. They are valid until the next call that changes the table. */
bool choices_at(const struct choices *c, int i, const char **key, const char **note);
/* Removes the choices and proposals of all machines whose key begins with this. */
void choices_drop(struct choices *c, const char *prefix);
/* Removes the choices and proposals of other machines. */
void choices_drop_others(struct choices *c);
/* Changes whenever a choice that was found may have become another one, also by choices_put. */
unsigned choices_version(const struct choices *c);

/* Appends the text, with the proposals. */
void choices_write(const struct choices *c, struct buf *out);
/* Adds the choices of a text, which replace those of the same machine and key if `replace`. Returns
 * the number of lines that were skipped. */
int choices_read(struct choices *c, const char *text, size_t n, bool replace);
/* See above; the mode becomes CHOICES_FIXED. */
void choices_agree(struct choices *c, const char *text, size_t n);

/* --- Files (choices_file.c) --------------------------------------------------------------- */

/* The user's file: $XDG_CACHE_HOME/muster/choices or ~/.cache/muster/choices. false: neither
 * variable is set. */
bool choices_cache_path(char *path, size_t size);
/* Adds the choices of a file to those of the table. A missing file is empty; of a damaged one the
 * whole lines are taken, and one warning is logged. */
int choices_load(struct choices *c, const char *path, struct err *e);
/* Merges the table into the file, which is replaced atomically; the table's choices win. Makes its
 * folder. Processes that write at the same time wait for each other, but not for long: on a file
 * system where locks do not work, the lines of one of them can be lost. */
int choices_save(const struct choices *c, const char *path, struct err *e);

#endif
