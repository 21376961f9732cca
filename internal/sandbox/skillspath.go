package sandbox

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
)

// DefaultSkillsPath is where the skills appear in the container unless the request says otherwise.
const DefaultSkillsPath = "/mnt/skills"

// CheckSkillsPath returns p when the skills can be mounted there: an absolute, normalised path that does not get in the
// way of the other mounts. The error says what is wrong, without naming the field.
func CheckSkillsPath(p string) (string, error) {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "", errors.New("must be an absolute path")
	case path.Clean(p) != p:
		return "", fmt.Errorf("must be a normalised path, such as %s", path.Clean(p))
	case p == "/":
		return "", errors.New("must not be the root directory")
	case strings.ContainsFunc(p, unicode.IsControl):
		return "", errors.New("must not contain control characters")
	}
	for _, reserved := range [...]string{UserDataPath, WorkspacePath, LarkPath} {
		if p == reserved || strings.HasPrefix(p, reserved+"/") || strings.HasPrefix(reserved, p+"/") {
			return "", fmt.Errorf("must not be equal to, above or below %s", reserved)
		}
	}
	return p, nil
}

// SkillCategory is the category of skills that appears at containerPath below skillsPath; false when none does.
func SkillCategory(containerPath, skillsPath string) (string, bool) {
	category, below := strings.CutPrefix(containerPath, skillsPath+"/")
	if !below {
		return "", false
	}
	switch category {
	case "public", "custom", "legacy", "integrations":
		return category, true
	}
	return "", false
}
