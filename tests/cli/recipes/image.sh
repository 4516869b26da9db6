# Makes the folder `image`: a root file system with the host's shell, some tools, and the libraries that
# these and dray need, in place of one from a registry.
mkdir -p image/usr/{bin,sbin,lib,lib64} image/{dev,proc,sys,run,tmp,etc,srv}
ln -s usr/bin usr/sbin usr/lib usr/lib64 image
programs=$(for program in bash sh sleep cat id env mkdir; do command -v "$program"; done)
{
    echo "$programs"
    # A statically linked program has no libraries.
    for program in $programs "$(realpath "$(command -v dray)")"; do
        ldd "$program" 2>/dev/null | grep -o '/[^ :)]*' || true
    done
} | sort -u | xargs -I{} cp --parents -L {} image
