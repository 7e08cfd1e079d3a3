# The bash of a terminal reads this file instead of its login files. The file reads the login files,
# then puts the server's programs in front of PATH, because /etc/profile of Debian and others resets
# PATH.
#
# This file is the ENV of `bash --posix -l` (app.py:login_shell). That is the only way in which bash
# reads only a given file and is a login shell, which the profiles of some distributions require. An
# rcfile would be read after /etc/bash.bashrc, which Debian's /etc/profile reads, too.

set +o posix
shopt -u inherit_errexit 2>/dev/null # POSIX mode turns it on and does not turn it off again
if [[ ${HISTFILE-} == ~/.sh_history ]]; then HISTFILE=~/.bash_history; fi
unset ENV
if [[ -v TFCLUSTER_TERMINAL_ENV ]]; then export ENV=$TFCLUSTER_TERMINAL_ENV; fi
_tfcluster_path=$TFCLUSTER_TERMINAL_PATH
unset TFCLUSTER_TERMINAL_ENV TFCLUSTER_TERMINAL_PATH

if [[ -r /etc/profile ]]; then . /etc/profile; fi
for _tfcluster_file in ~/.bash_profile ~/.bash_login ~/.profile ~/.bashrc; do
  if [[ -r $_tfcluster_file ]]; then
    . "$_tfcluster_file"
    break
  fi
done

export PATH=$_tfcluster_path:$PATH
unset _tfcluster_path _tfcluster_file
