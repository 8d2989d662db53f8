/*
 * ptrace(2) for user-mode Linux on a processor with more extended state (XSAVE) than fits into that kernel's buffer of
 * 2,696 bytes, which ends with the protection keys. Linux takes a state only whole and refuses a shorter one with EFAULT
 * (xstateregs_set() in arch/x86/kernel/fpu/regset.c), at which the guest's first process ends. With AMX the state has
 * 11,008 bytes. To be preloaded.
 *
 * What the buffer has no room for is not in use: a process needs a permission for it, arch_prctl(ARCH_REQ_XCOMP_PERM),
 * which user-mode Linux cannot give.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Where the header says which components are in use (XSTATE_BV), and the last of those that fit: PKRU. */
enum { HEADER = 512, LAST = 9, MOST = 1 << 16 };

typedef long (*ptrace_fn)(enum __ptrace_request, pid_t, void *, void *);

/* Too large for a stack of that kernel, which has one thread. */
static char whole[MOST] __attribute__((aligned(64)));
static size_t size;

/* The size of a whole state of this processor; 0 if there is none. */
static size_t whole_size(ptrace_fn next, pid_t pid, void *kind)
{
	struct iovec all = { whole, sizeof(whole) };

	return next(PTRACE_GETREGSET, pid, kind, &all) < 0 ? 0 : all.iov_len;
}

static long set_whole(ptrace_fn next, pid_t pid, void *kind, const struct iovec *part)
{
	struct iovec all = { whole, size };
	uint64_t used;

	memcpy(whole, part->iov_base, part->iov_len);
	memcpy(&used, whole + HEADER, sizeof(used));
	used &= (2ULL << LAST) - 1;
	memcpy(whole + HEADER, &used, sizeof(used));
	return next(PTRACE_SETREGSET, pid, kind, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_fn next;
	const struct iovec *part;
	void *kind, *data;
	va_list rest;
	pid_t pid;

	va_start(rest, request);
	pid = va_arg(rest, pid_t);
	kind = va_arg(rest, void *);
	data = va_arg(rest, void *);
	va_end(rest);
	if (!next)
		next = (ptrace_fn)dlsym(RTLD_NEXT, "ptrace");
	if (request != PTRACE_SETREGSET || (uintptr_t)kind != NT_X86_XSTATE)
		return next(request, pid, kind, data);
	part = data;
	if (!size)
		size = whole_size(next, pid, kind);
	if (part->iov_len < size && part->iov_len >= HEADER + sizeof(uint64_t))
		return set_whole(next, pid, kind, part);
	return next(request, pid, kind, data);
}
