#include "tests/gpu/emulator/fiber.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* COLOURS: stacks begin at different lines of the cache, since every fiber touches the top of
 * its own. */
enum { STACK = 128 << 10, PAGE = 4096, COLOURS = 32, LINE = 128, STACKS = 2048 };

static char *guards[STACKS];
static int stacks;

/* Returns the top of a new stack. */
static char *stack_new(const char **begin)
{
	char *low = mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (low == MAP_FAILED || mprotect(low, PAGE, PROT_NONE) < 0)
		abort();
	int i = stacks++;
	if (i < STACKS)
		guards[i] = low;
	*begin = low + PAGE;
	return low + PAGE + STACK - (ptrdiff_t)(i % COLOURS) * LINE;
}

int fiber_overflowed(const void *at)
{
	for (int i = 0; i < stacks && i < STACKS; i++)
		if ((const char *)at >= guards[i] && (const char *)at < guards[i] + PAGE)
			return 1;
	return 0;
}

#if defined(__x86_64__) || defined(__aarch64__)

struct fiber {
	/* stack pointers of the fiber and of its caller, while they do not run */
	void *here, *there;
	const char *stack;
};

/* Saves the callee-saved registers and the stack pointer, and loads those of another fiber. */
void fiber_switch(void **save, void *load);

#ifdef __x86_64__
__asm__(".text\n"
	".globl fiber_switch\n"
	".hidden fiber_switch\n"
	".type fiber_switch, @function\n"
	"fiber_switch:\n"
	"	pushq %rbp\n	pushq %rbx\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	"
	"pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbx\n	"
	"popq %rbp\n"
	"	ret\n"
	".size fiber_switch, . - fiber_switch\n");

/* words: six registers, the return address, and one for the stack's alignment */
enum { RETURN = 6, FRAME = 8 };
#else
__asm__(".text\n"
	".globl fiber_switch\n"
	".hidden fiber_switch\n"
	".type fiber_switch, %function\n"
	"fiber_switch:\n"
	"	sub sp, sp, #160\n"
	"	stp x19, x20, [sp]\n	stp x21, x22, [sp, #16]\n	stp x23, x24, [sp, #32]\n"
	"	stp x25, x26, [sp, #48]\n	stp x27, x28, [sp, #64]\n	stp x29, x30, [sp, "
	"#80]\n"
	"	stp d8, d9, [sp, #96]\n	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n	stp d14, d15, [sp, #144]\n"
	"	mov x9, sp\n	str x9, [x0]\n	mov sp, x1\n"
	"	ldp x19, x20, [sp]\n	ldp x21, x22, [sp, #16]\n	ldp x23, x24, [sp, #32]\n"
	"	ldp x25, x26, [sp, #48]\n	ldp x27, x28, [sp, #64]\n	ldp x29, x30, [sp, "
	"#80]\n"
	"	ldp d8, d9, [sp, #96]\n	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n	ldp d14, d15, [sp, #144]\n"
	"	add sp, sp, #160\n"
	"	ret\n"
	".size fiber_switch, . - fiber_switch\n");

enum { RETURN = 11, FRAME = 20 }; /* words: x30 is the twelfth */
#endif

struct fiber *fiber_new(void (*body)(void))
{
	struct fiber *f = calloc(1, sizeof *f);
	if (!f)
		abort();
	uintptr_t *frame = (uintptr_t *)stack_new(&f->stack) - FRAME;
	frame[RETURN] = (uintptr_t)body;
	f->here = frame;
	return f;
}

void fiber_resume(struct fiber *f)
{
	fiber_switch(&f->there, f->here);
}

void fiber_suspend(struct fiber *f)
{
	fiber_switch(&f->here, f->there);
}

#else

#include <ucontext.h>

struct fiber {
	ucontext_t here, there;
	const char *stack;
};

struct fiber *fiber_new(void (*body)(void))
{
	struct fiber *f = calloc(1, sizeof *f);
	if (!f || getcontext(&f->here) < 0)
		abort();
	char *top = stack_new(&f->stack);
	f->here.uc_stack.ss_sp = top - STACK / 2;
	f->here.uc_stack.ss_size = STACK / 2;
	makecontext(&f->here, body, 0);
	return f;
}

void fiber_resume(struct fiber *f)
{
	swapcontext(&f->there, &f->here);
}

void fiber_suspend(struct fiber *f)
{
	swapcontext(&f->here, &f->there);
}

#endif

const char *fiber_stack(const struct fiber *f, size_t *bytes)
{
	*bytes = STACK;
	return f->stack;
}
